"""The differences between Spark 3.5, 4.0, 4.1 and 4.2: jars and their checksums, settings, and what one cannot do.

Nothing else asks which Spark this is. The version is found without importing pyspark, which takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from tidefold.errors import NotFoundError, RefusedError

# Spark 4 has these defaults. With those of 3.5, dates before 1900 are errors, and a check that fails is null.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
EXTRAS = 'Install one of them, such as `pip install "tidefold[spark42]"`, `[spark41]`, `[spark40]` or `[spark35]`.'
_STORAGE = ("delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc")
NEWEST = "4.2"


class SparkFeature(StrEnum):
    """What not every Spark has."""

    CONNECT = "Spark Connect"
    DATA_SOURCE = "the format `tidefold`"


# What works instead.
INSTEAD = {
    SparkFeature.CONNECT: "Set `spark.master` to `local[*]` or the cluster's own address: steps then use spark-submit.",
    SparkFeature.DATA_SOURCE: "Read the published table: `spark.read.format('delta').load('STORE/tables/LOG')`.",
}


@dataclass(frozen=True, slots=True)
class SparkVersion:
    """What belongs to one minor version of Spark. A jar is its name, its version and its sha256.

    delta: Delta's jar, and the jar that it needs.
    s3: Spark's client for S3, of the Hadoop that pyspark ships.
    aws: the jars of AWS that this client uses: a part of `s3_jars.txt`.
    credentials: AWS's class that finds credentials as all AWS clients do.
    java: the versions of Java that it was run with.
    breaks_on: the oldest Java that it was seen to fail with (`getSubject is not supported`); None: none.
    lacks: what it cannot do.
    """

    delta: tuple[tuple[str, str, str], ...]
    s3: tuple[str, str, str]
    aws: str = "sdk2"
    credentials: str = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    java: tuple[int, ...] = (17,)
    breaks_on: int | None = None
    lacks: frozenset[SparkFeature] = frozenset()


SPARKS = {
    "3.5": SparkVersion(
        (
            ("delta-spark_2.12", "3.3.3", "4912bf902a1c453aba3bd838ff212dedd357155212f9bb37a6b47d97f2827ebc"),
            ("delta-storage", "3.3.3", "45ad193053fd30cebe6d9ab1889873cde39b223a0f210e00ebee8b6642476901"),
        ),
        ("hadoop-aws", "3.3.4", "53f9ae03c681a30a50aa17524bd9790ab596b28481858e54efd989a826ed3a4a"),
        aws="sdk1",
        credentials="com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
        breaks_on=25,
        lacks=frozenset(SparkFeature),
    ),
    "4.0": SparkVersion(
        (
            ("delta-spark_4.0_2.13", "4.4.0", "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104"),
            _STORAGE,
        ),
        ("hadoop-aws", "3.4.1", "01334a07e179cae2b7e251f24857f11e3759108c9d6a79dcbe362a4295227da2"),
        breaks_on=25,
    ),
    "4.1": SparkVersion(
        (
            ("delta-spark_4.1_2.13", "4.4.0", "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"),
            _STORAGE,
        ),
        ("hadoop-aws", "3.4.2", "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9"),
        breaks_on=25,
    ),
    "4.2": SparkVersion(
        (
            ("delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
            _STORAGE,
        ),
        ("hadoop-aws", "3.5.0", "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa"),
        java=(17, 25),
    ),
}


@cache
def find_spark() -> str:
    """The version of pyspark in this environment, or of its client; empty: there is none."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def find_version(spark: str) -> SparkVersion | None:
    """What belongs to a version such as 4.1.4, and to the newest without one; None: it is not supported."""
    return SPARKS.get(minor_of(spark) if spark else NEWEST)


def minor_of(spark: str) -> str:
    """The minor version: 4.1 of 4.1.4. Patches of one minor version fit each other."""
    return ".".join(spark.split(".")[:2])


def require_version() -> SparkVersion:
    """What belongs to the Spark of this environment. Raises RefusedError for one that is not supported."""
    if version := find_version(find_spark()):
        return version
    raise RefusedError("SPARK_VERSION", describe_unsupported(find_spark()), hint=EXTRAS)


def describe_unsupported(spark: str) -> str:
    """Why a version of Spark is refused."""
    return f"Spark {spark} is not supported: tidefold runs on {', '.join(SPARKS)}."


def require_feature(feature: SparkFeature) -> None:
    """Raises NotFoundError if the Spark of this environment does not have it."""
    version = find_version(find_spark())
    if version and feature in version.lacks:
        raise NotFoundError("SPARK_TOO_OLD", f"Spark {find_spark()} does not have {feature}.", hint=INSTEAD[feature])
