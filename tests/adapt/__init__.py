"""Plans of running views that follow the data: margins, advice, switches, and that no answer depends on them."""
