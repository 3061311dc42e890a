"""What hosts can do, found out by trying."""
