"""The application: `BOOTSTRAP_SERVERS=localhost:9092 faststream run main:app`."""

import os

from faststream import FastStream
from shop import new_broker

app = FastStream(new_broker(os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")))
