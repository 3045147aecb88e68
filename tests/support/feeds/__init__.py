"""Feeds as programs write them, with the rows that they must become. No file is stored: each is written by a function.

| module | what it has | list |
|---|---|---|
| `ordinary` | one history of orders in two parts, in 24 forms of CSV, JSON, Debezium, Parquet and Delta | `FEEDS` |
| `tools` | the same history as 34 programs export it, with their names of files and columns | `TOOL_FEEDS` |
| `days` | 62 kinds of feeds over three days, of a seed: times, numbers, codings, deletes, whole extracts | `KINDS` |
| `deliveries` | tables of all sorts in two deliveries, written by someone who had not seen the program | `DELIVERIES` |
| `business` | deliveries of business programs; and change logs of other tools | `BUSINESS`, `CONVERTED` |
| `streams` | the same of databases, services and query engines | `STREAMS`, `CONVERTED_STREAMS` |

A feed of the `CONVERTED` lists becomes rows by the command that `init` names. Captures of real databases are data:
`tests/data/bank` and its neighbours.
"""
