"""What commands print and write: results, progress, files and their names."""
