"""Reading and writing of files: .npy headers, atomic writes, mappings."""
