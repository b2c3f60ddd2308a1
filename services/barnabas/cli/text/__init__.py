"""What commands print, and what they read: tables, progress bars, record formats."""
