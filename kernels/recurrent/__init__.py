"""Recurrent layers: LSTM and GRU over whole sequences."""
