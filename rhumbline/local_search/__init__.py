"""Our own local searches, which improve plans on the CPU, on several threads."""
