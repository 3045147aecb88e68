"""Addresses in Azure and Google Cloud Storage, and the options of their readers. Promise I26."""

from __future__ import annotations

import json

import pytest

from tidefold.errors import InvalidInputError
from tidefold.storage.azure.address import AzureAccount, AzureAddress
from tidefold.storage.gcs.address import GcsAddress, GcsEndpoint

ACCOUNT = {"AZURE_STORAGE_ACCOUNT_NAME": "account1"}


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("abfs://data/a/store", AzureAddress("account1", "data", "a/store")),
        ("abfss://data@other1.dfs.core.windows.net/a=b/", AzureAddress("other1", "data", "a=b")),
        ("abfss://data@other1.dfs.core.windows.net", AzureAddress("other1", "data", "")),
    ],
)
def test_addresses_in_azure(address: str, found: AzureAddress) -> None:
    parsed = AzureAddress.parse(address, ACCOUNT)
    assert parsed == found
    assert AzureAddress.parse(parsed.uri(parsed.prefix), {}) == found


@pytest.mark.parametrize(
    "address",
    [
        "abfs://d/a",
        "abfs://data/a/../b",
        "abfs://data/a b",
        "abfs://data/a%20b",
        "abfs://data/a./b",
        "abfss://data@evil.example.com/a",
        "abfss://data@account1.dfs.core.windows.net.evil.com/a",
        "abfss://user:secret@account1.dfs.core.windows.net/a",
        "abfs://data/a?sig=secret",
    ],
)
def test_other_addresses_in_azure_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        AzureAddress.parse(address, ACCOUNT)
    assert refused.value.code == "STORE_ADDRESS"
    assert "secret" not in str(refused.value)


def test_an_address_without_an_account_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        AzureAddress.parse("abfs://data/a", {})
    assert "AZURE_STORAGE_ACCOUNT_NAME" in refused.value.hint


def test_options_of_azure_hold_no_secret() -> None:
    secrets = {"AZURE_STORAGE_ACCOUNT_KEY": "a-secret", "AZURE_STORAGE_SAS_TOKEN": "another-secret"}
    account = AzureAccount.of("account1", secrets | {"AZURE_STORAGE_ENDPOINT": "https://a.blob.core.chinacloudapi.cn/"})
    assert account.delta_options() == {
        "azure_storage_account_name": "account1",
        "azure_storage_endpoint": "https://a.blob.core.chinacloudapi.cn",
    }


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("gs://bucket_1.example/a/store", GcsAddress("bucket_1.example", "a/store")),
        ("gs://bucket/a=b/", GcsAddress("bucket", "a=b")),
        ("gs://bucket", GcsAddress("bucket", "")),
    ],
)
def test_addresses_in_google(address: str, found: GcsAddress) -> None:
    parsed = GcsAddress.parse(address)
    assert parsed == found
    assert GcsAddress.parse(parsed.uri(parsed.prefix)) == found


@pytest.mark.parametrize(
    "address",
    [
        "gs://",
        "gs://B/a",
        "gs://bucket/a/../b",
        "gs://bucket/a//b",
        "gs://bucket/a b",
        "gs://bucket/a%20b",
        "gs://bucket/a?generation=secret",
        "gs://user:secret@bucket/a",
        "GS://bucket/a",
    ],
)
def test_other_addresses_in_google_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        GcsAddress.parse(address)
    assert refused.value.code == "STORE_ADDRESS"
    assert "secret" not in str(refused.value)


def test_options_of_google_hold_no_secret() -> None:
    assert GcsEndpoint.of({"GOOGLE_APPLICATION_CREDENTIALS": "/a/secret.json"}).delta_options() == {}
    [(name, value)] = GcsEndpoint.of({"STORAGE_EMULATOR_HOST": "127.0.0.1:1/"}).delta_options().items()
    assert name == "google_service_account_key"
    assert json.loads(value) == {
        "gcs_base_url": "http://127.0.0.1:1",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
