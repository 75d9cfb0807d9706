# SPDX-License-Identifier: Apache-2.0
"""boto3 as users run it: gets or puts of one size against a server of S3, one after the other, for some seconds.

Prints one JSON line.
"""

import json
import os
import sys
import time

import boto3
from botocore.config import Config

KEYS = 8


def main() -> None:
    """URL, "get" or "put", BYTES, SECONDS."""
    url, what, size, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="id", aws_secret_access_key="secret",
                      config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))
    if "bench" not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket="bench")
    data = os.urandom(size)
    for i in range(KEYS):
        s3.put_object(Bucket="bench", Key=str(i), Body=data)
    assert s3.get_object(Bucket="bench", Key="0")["Body"].read() == data
    done, begin = 0, time.monotonic()
    while done == 0 or time.monotonic() < begin + seconds:
        key = str(done % KEYS)
        if what == "put":
            s3.put_object(Bucket="bench", Key=key, Body=data)
        else:
            assert len(s3.get_object(Bucket="bench", Key=key)["Body"].read()) == size
        done += 1
    print(json.dumps({"bytes_per_s": done * size / (time.monotonic() - begin)}))


if __name__ == "__main__":
    main()
