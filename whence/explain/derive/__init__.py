"""From rows of any view to the derivations behind them; and why a row is not there."""
