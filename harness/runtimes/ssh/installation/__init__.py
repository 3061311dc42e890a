"""What is put on hosts."""
