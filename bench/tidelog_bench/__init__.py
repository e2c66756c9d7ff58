"""The benchmark harness: tidelog and its peers, run alternately."""
