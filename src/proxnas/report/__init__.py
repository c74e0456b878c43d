"""What a run looks like to people: pages, figures, tables. Reads run folders and genotypes only;
imports `common` and `cells`, no torch."""
