"""One file per API family: request in, response out."""
