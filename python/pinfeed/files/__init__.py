"""Files as pinfeed reads and writes them: .npy headers, complete or absent files, mappings."""
