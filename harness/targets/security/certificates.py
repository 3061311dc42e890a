"""Certificates of one run: an authority (RFC 5280), and what it vouches for."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Before and after now: clocks of nodes are set wrong on purpose.
_VALID: Final = datetime.timedelta(days=3650)
_USED: Final = dict.fromkeys(
    ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
     "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"), False,
)  # fmt: skip


class Issued(NamedTuple):
    """In PEM; the key as PKCS #8, which Java wants."""

    certificate: bytes
    key: bytes


class Authority:
    """Its key is in this object alone."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        usage = x509.KeyUsage(**{**_USED, "key_cert_sign": True, "crl_sign": True})
        self._certificate = (
            _begun(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """In PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, addresses: Sequence[str] = ()) -> Issued:
        """addresses: of a server, by which clients reach it; (): it is a client's."""
        key = ec.generate_private_key(ec.SECP256R1())
        use = ExtendedKeyUsageOID.SERVER_AUTH if addresses else ExtendedKeyUsageOID.CLIENT_AUTH
        made = (
            _begun(_named(name), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**{**_USED, "digital_signature": True}), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )  # fmt: skip
        if addresses:
            made = made.add_extension(x509.SubjectAlternativeName([_general(each) for each in addresses]), False)
        return Issued(
            made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), pkcs8(key),
        )  # fmt: skip


def readable_key(pem: bytes, password: str) -> str:
    """A private key of any form of PEM, as PKCS #8 without a password. Raises ValueError, TypeError."""
    key = serialization.load_pem_private_key(pem, password.encode() if password else None)
    return pkcs8(key).decode()


def pkcs8(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
