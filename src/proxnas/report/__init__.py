"""What a run looks like to people: reads run folders and genotypes only, imports neither methods nor torch."""
