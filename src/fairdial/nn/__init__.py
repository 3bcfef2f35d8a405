"""Everything that needs torch: networks, losses, the implicit gradient, MA-SOBA, the loop."""
