"""What is found, as data: genotypes, designs of networks, published cells, tables of trained cells.
No torch; imports only `common`."""
