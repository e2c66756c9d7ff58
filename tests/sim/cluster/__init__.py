"""Several brokers in one simulation: machines, clients that find leaders, faults between them."""
