"""Pictures. Functions take records and perhaps axes, return the axes, read no files and open no windows."""
