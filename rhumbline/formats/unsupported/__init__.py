"""Files of related problems, which are recognised and refused by the name of what is missing."""
