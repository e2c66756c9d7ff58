"""Convert between bytes and values: Kafka's wire format, without logs or clusters.

Pure functions and tables; no loop, no socket, no clock. From the bottom up:

    errors      error codes, and ProtocolError for bytes that can't be read
    primitives  varints, tagged fields, ids
    schema      the vocabulary of message tables: a class body is a message's table
    messages/   the tables, one file per family of APIs, every version in one table
    decoders    a table and a version to the source of a decoder
    encoders    the same for encoders
    compiler    `codec(table, version)`: both, made on first use and cached
    apis        api key to versions, header versions and tables
    frames      sizes and headers: received bytes to frames, messages to frames
    checksum    CRC-32C
    batch       the header of a record batch, read and stamped in place
    records     records in batches: iterate, build, control records
    record_spans  positions of records in a batch, for compaction
    plain_answers hand-written encoders of the two hot responses, Produce and Fetch
    naming      what messages name: topics, partitions, groups, transactional ids
    error_answers  answers with an error for all that a request names
    fitting     makes a response fit that the wire cannot carry
    compression codecs by attribute bits

This file imports nothing, so start-up pays only for the modules that it imports itself.
"""
