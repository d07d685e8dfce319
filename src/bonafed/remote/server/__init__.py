"""The operator's side: whom it asks, what came, and the evidence that it keeps."""
