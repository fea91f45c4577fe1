"""The grammar of each file format. `rhumbline.files` says which problem has which formats."""
