"""The egress policy: what is refused, what an allow list opens, what nothing opens."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniboxes.node.egress.policy import EgressPolicy, IPAddress, Refusal, canonical_host

EVERYTHING = "0.0.0.0/0, ::/0, localhost, evil.example"


def check(
    allow: str,
    host: str,
    port: int = 80,
    address: str = "",
    *,
    guarded_ports: tuple[int, ...] = (),
    local: tuple[str, ...] = ("127.0.0.1", "::1"),
) -> Refusal | None:
    policy = EgressPolicy.parse(allow, guarded_ports=guarded_ports)
    mine = {ip_address(text) for text in local}
    return policy.check(host, port, ip_address(address or host), is_local=mine.__contains__)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_open(address: str) -> None:
    assert check("", "example.com", 443, address) is None


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.0.9", "loopback"),
        ("::1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("100.64.0.1", "carrier-grade"),
        ("192.0.0.8", "special-purpose"),
        ("198.18.0.1", "special-purpose"),
        ("192.0.2.1", "documentation"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("2001:2::1", "special-purpose"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::10.0.0.1", "private"),
        ("2002:7f00:1::", "special-purpose"),
        ("2001:0:808:808::80ff:fffe", "special-purpose"),
    ],
)
def test_what_is_not_public_is_refused_and_can_be_allowed(address: str, reason: str) -> None:
    refusal = check("", "evil.example", 80, address)
    assert refusal is not None
    assert reason in refusal.reason
    assert refusal.is_allowable
    assert check("evil.example", "evil.example", 80, address) is None


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("169.254.0.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("::ffff:0.0.0.0", "unspecified"),
        ("64:ff9b::", "unspecified"),
        ("224.0.0.251", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("240.0.0.1", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:0:127.0.0.1", "reserved"),
        ("64:ff9b:1::7f00:1", "reserved"),
        ("100::1", "reserved"),
    ],
)
def test_some_addresses_are_refused_whatever_is_allowed(address: str, reason: str) -> None:
    bare = address.partition("%")[0]
    refusal = check(f"{EVERYTHING}, {bare}", "evil.example", 80, address)
    assert refusal is not None
    assert reason in refusal.reason
    assert not refusal.is_allowable
    assert "never allowed" in refusal.sentence


@pytest.mark.parametrize(
    ("allow", "host", "port", "address", "is_open"),
    [
        ("localhost", "localhost", 8000, "127.0.0.1", True),
        ("localhost", "LocalHost.", 8000, "127.0.0.1", True),
        ("LOCALHOST.", "localhost", 8000, "127.0.0.1", True),
        ("localhost", "127.0.0.1", 8000, "127.0.0.1", False),
        ("localhost", "evil.localhost", 8000, "127.0.0.1", False),
        ("intranet.corp", "intranet.corp", 443, "10.0.0.9", True),
        ("intranet.corp", "x.intranet.corp", 443, "10.0.0.9", False),
        ("intranet.corp", "intranet.corp.evil.example", 443, "10.0.0.9", False),
        ("bücher.corp", "xn--bcher-kva.corp", 443, "10.0.0.9", True),
        ("127.0.0.0/8", "rebind.example", 80, "127.9.9.9", True),
        ("127.0.0.0/8", "rebind.example", 80, "::1", False),
        ("127.0.0.0/8", "rebind.example", 80, "::ffff:127.0.0.1", True),
        ("::ffff:127.0.0.0/104", "rebind.example", 80, "127.0.0.1", True),
        ("10.1.2.3", "intranet", 80, "10.1.2.3", True),
        ("10.1.2.3", "intranet", 80, "10.1.2.4", False),
        ("::1", "localhost", 80, "::1", True),
        ("[::1]", "localhost", 80, "::1", True),
        ("0:0:0::1", "localhost", 80, "::1", True),
        ("[::1]:8000", "localhost", 8000, "::1", True),
        ("[::1]:8000", "localhost", 8001, "::1", False),
        ("fd00::/8", "intranet", 80, "fd12::1", True),
        ("127.0.0.1:8000", "localhost", 8000, "127.0.0.1", True),
        ("127.0.0.1:8000", "localhost", 8001, "127.0.0.1", False),
        ("localhost:8000", "localhost", 8000, "127.0.0.1", True),
        ("localhost:8000", "localhost", 8001, "127.0.0.1", False),
        ("localhost:8000", "127.0.0.1", 8000, "127.0.0.1", False),
        (" a.example , , 10.0.0.0/8,", "b.example", 80, "10.0.0.1", True),
        # The tunnel and what is inside it must both be allowed.
        ("2002::/16", "evil.example", 80, "2002:7f00:1::", False),
        ("2002::/16, 127.0.0.1", "evil.example", 80, "2002:7f00:1::", True),
    ],
)
def test_an_allow_rule_opens_what_it_names_and_nothing_else(
    allow: str, host: str, port: int, address: str, is_open: bool
) -> None:
    assert (check(allow, host, port, address) is None) is is_open


@pytest.mark.parametrize(
    "entry",
    [
        "http://localhost:8000",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "localhost:http",
        "localhost:-1",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/8:80",
        "*.corp",
        "-a.corp",
        "a..b",
        "a b",
        "[::1",
        "[127.0.0.1]",
        "[::1]8000",
        "[localhost]:80",
        "::1:8000:zz",
        "fe80::1%eth0",
        "2130706433",
        "127.1",
        "127.0.0.1.",
        "010.0.0.1",
        "0x7f.1",
        "1.2.3.256",
        "user@host",
    ],
)
def test_a_malformed_entry_is_named_in_one_sentence(entry: str) -> None:
    with pytest.raises(ValueError, match="OMNIBOX_EGRESS_ALLOW") as caught:
        EgressPolicy.parse(f"localhost,{entry}", guarded_ports=())
    message = str(caught.value)
    assert repr(entry) in message
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "203.0.113.7"])
def test_a_guarded_port_of_this_machine_is_refused_whatever_is_allowed(address: str) -> None:
    mine = ("127.0.0.1", "::1", "203.0.113.7")
    allow = f"{EVERYTHING}, localhost:6379"
    refusal = check(allow, "localhost", 6379, address, guarded_ports=(6379,), local=mine)
    assert refusal is not None
    assert not refusal.is_allowable
    assert check(allow, "localhost", 6380, address, guarded_ports=(6379,), local=mine) is None


def test_a_guarded_port_elsewhere_is_open() -> None:
    assert check("", "example.com", 8080, "8.8.8.8", guarded_ports=(8080,)) is None


@pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", "64:ff9b::10.0.0.7"])
def test_a_guarded_endpoint_is_refused_wherever_it_is(address: str) -> None:
    policy = EgressPolicy.parse(
        EVERYTHING, guarded_ports=(), guarded_endpoints=[("10.0.0.7", 6379)]
    )

    def refusal(port: int) -> Refusal | None:
        return policy.check("redis", port, ip_address(address), is_local=lambda _: False)

    assert refusal(6379) is not None
    assert refusal(6380) is None


@pytest.mark.parametrize(
    ("allow", "host", "port", "is_open"),
    [
        ("", "example.com", 443, True),
        ("", "intranet", 443, False),
        ("", "localhost", 443, False),
        ("", "localhost.", 443, False),
        ("", "a.localhost", 443, False),
        ("", "printer.local", 443, False),
        ("", "metadata.google.internal", 80, False),
        ("", "127.0.0.1.", 80, False),
        ("", "1.2.3.256", 80, False),
        ("", "example.com", 6379, False),
        ("intranet", "intranet", 443, True),
        ("intranet:80", "intranet", 443, False),
        ("example.com", "example.com", 6379, False),
    ],
)
def test_a_name_for_an_upstream_to_resolve_must_not_be_private(
    allow: str, host: str, port: int, is_open: bool
) -> None:
    policy = EgressPolicy.parse(allow, guarded_ports=(6379,))
    assert (policy.check_unresolved(host, port) is None) is is_open


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("Example.COM.", "example.com"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2130706433", "127.0.0.1"),
        ("0x7F000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("1.example", "1.example"),
        ("09.1.1.1", "09.1.1.1"),
    ],
)
def test_every_spelling_of_a_host_is_the_same_host(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


@pytest.mark.parametrize(
    ("allow", "host", "port", "address", "sentence"),
    [
        (
            "",
            "localhost",
            8000,
            "127.0.0.1",
            "Address 127.0.0.1:8000 (localhost) is a loopback address; "
            "add 127.0.0.1:8000 to OMNIBOX_EGRESS_ALLOW to allow it.",
        ),
        (
            "",
            "::1",
            80,
            "::1",
            "Address [::1]:80 is a loopback address; "
            "add [::1]:80 to OMNIBOX_EGRESS_ALLOW to allow it.",
        ),
        (
            "169.254.0.0/16",
            "169.254.169.254",
            80,
            "169.254.169.254",
            "Address 169.254.169.254:80 is a cloud metadata address and never allowed, "
            "whatever OMNIBOX_EGRESS_ALLOW says.",
        ),
    ],
)
def test_a_refusal_says_what_to_do_about_it(
    allow: str, host: str, port: int, address: str, sentence: str
) -> None:
    refusal = check(allow, host, port, address)
    assert refusal is not None
    assert refusal.sentence == sentence


NEVER = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "100.100.100.200/32",
        "::/128",
        "fe80::/10",
        "ff00::/8",
        "fd00:ec2::254/128",
        "4000::/3",
    )
]


def _within(network: IPv4Network | IPv6Network) -> st.SearchStrategy[IPAddress]:
    first, last = int(network[0]), int(network[-1])
    kind = IPv4Address if isinstance(network, IPv4Network) else IPv6Address
    return st.integers(first, last).map(kind)


def _wrapped(address: IPAddress) -> st.SearchStrategy[IPAddress]:
    if isinstance(address, IPv6Address):
        return st.just(address)
    bits = int(address)
    return st.sampled_from(
        [
            address,
            IPv6Address(0xFFFF << 32 | bits),
            IPv6Address(0x64FF9B << 96 | bits),
            IPv6Address(0x2002 << 112 | bits << 80),
            IPv6Address(0x20010000 << 96 | bits << 64 | 0xFFFF_FFFF ^ 0x08080808),
            IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | 0xFFFF_FFFF ^ bits),
        ]
    )


never_allowed = st.sampled_from(NEVER).flatmap(_within).flatmap(_wrapped)
entries = st.one_of(
    st.sampled_from(["0.0.0.0/0", "::/0", "evil.example", "evil.example:80"]),
    st.ip_addresses().map(str),
    st.tuples(st.ip_addresses(v=4), st.integers(0, 32)).map(
        lambda pair: str(ip_network(pair, strict=False))
    ),
)


@given(address=never_allowed, allow=st.lists(entries), names_itself=st.booleans())
def test_no_allow_list_opens_an_address_that_is_never_allowed(
    address: IPAddress, allow: list[str], names_itself: bool
) -> None:
    policy = EgressPolicy.parse(
        ",".join([*allow, *([str(address)] if names_itself else [])]), guarded_ports=()
    )
    refusal = policy.check("evil.example", 80, address, is_local=lambda _: False)
    assert refusal is not None
    assert not refusal.is_allowable


@given(address=st.ip_addresses())
def test_only_public_addresses_are_open_without_an_allow_list(address: IPAddress) -> None:
    policy = EgressPolicy.parse("", guarded_ports=())
    if policy.check("evil.example", 80, address, is_local=lambda _: False) is None:
        inner = getattr(address, "ipv4_mapped", None) or address
        is_nat64 = address in IPv6Network("64:ff9b::/96")
        assert inner.is_global or is_nat64
