"""Finds what identifies a person, a machine or a secret in plain text, and the pseudonym that replaces it.

All patterns take linear time on hostile text: no repeated part can begin at every character of a long run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

HIDDEN = "<redacted>"

SHORTEST_NAME = 4
"""A shorter name is hidden only where it must be a name: as a whole word it would hit too much else."""

_WORDS = """
admin administrator anaconda ansible apache arch archlinux azureuser bash bench build builder buildkite centos check cloud
compute conda container core cuda cudadoctor cudnn cupy daemon data debian default demo deploy developer device docker driver
ec2-user error fedora files flash frank from gemm github gitlab gitlab-runner grace group guest home hopper host http https
jenkins jetson jovyan kaggle kernel kubernetes library linux local localdomain localhost login lovelace main mambauser master
memory micromamba miniconda mint missing model module nccl nobody node none nvcc nvidia nvml opensuse oracle package passed
peer podman poetry project public pytest python python3 report rocky root runner runtime samba scan server service share
shared slurm snap source staff student suse sync sysadmin system team temp tensor tesla test tester tests toolkit torch
triton ubuntu unknown user username users vagrant value vision vllm volta vscode wheel will windows worker workspace xavier
"""

ORDINARY_WORDS = frozenset(_WORDS.split())
"""Names that are also words of this field or of English, or that identify nobody: hidden only where they must be a name."""

NOT_PEOPLE = frozenset({"root", "git", "linuxbrew", "Shared", "Public", "Default", "nobody"})
"""Names in the place of a user's that are nobody's."""

MOST_NAMES = 100
"""More names than this are not looked for everywhere: a text with so many is a list of users or an attack."""

_PSEUDONYM = re.compile(r"(?:user|host|uuid|serial|email|mac|ip)-\d{1,6}")
_NO_NAME = re.compile(
    rf"(?:{_PSEUDONYM.pattern})|.*-linux-gnu|[\d.-]*|.*uuid-\d.*|.*[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-.*", re.IGNORECASE
)
"""Pseudonyms, build triplets, bare numbers and whatever holds a UUID."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Names known from outside the text, of this process for example; all may be empty."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()

    @classmethod
    def declared(cls, environment: Mapping[str, str], host: str = "") -> Identity:
        """The names that the variables of a process declare, and the name of its host."""
        users, hosts, homes = (
            tuple(environment[name] for name in names if environment.get(name))
            for names in (("USER", "LOGNAME", "USERNAME", "SUDO_USER"), ("HOSTNAME", "COMPUTERNAME"), ("HOME", "USERPROFILE"))
        )
        return cls(users, (host, *hosts) if host else hosts, homes)

    @classmethod
    def of_this_process(cls) -> Identity:
        """The names that this process's variables declare, and the machine's own name."""
        return cls.declared(os.environ, os.uname().nodename if hasattr(os, "uname") else "")


NOBODY = Identity()


@dataclass(slots=True)
class Pseudonyms:
    """Numbers each thing of a kind in the order in which it is first met."""

    _known: dict[tuple[str, str], str] = field(default_factory=dict)
    _count: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str, original: str) -> str:
        """`uuid-1` for the first UUID, and for that UUID ever after; a pseudonym stays itself."""
        if _PSEUDONYM.fullmatch(original):
            return original
        if (kind, original) not in self._known:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._known[kind, original] = f"{kind}-{self._count[kind]}"
        return self._known[kind, original]

    def known(self, kind: str) -> list[str]:
        """The originals of a kind."""
        return [original for known_kind, original in self._known if known_kind == kind]


# What names are there: learned from all texts of a report before any is changed

_HOME_FOLDER = re.compile(
    r"(?:/mnt/[a-z])?/(?:home|Users)/([^\\/\s:;,'\"<>|*?()\[\]{}$`=@~]{1,64})"
    r"|\b[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/)([^\\/:;,\"'<>|*?\r\n]{1,64}(?=[\\/])|[^\\/\s:;,'\"<>|*?]{1,64})"
)
_HOME_VARIABLE = re.compile(r"\bHOME=(/[^\s:;,'\"]{2,200})")
_USER_VARIABLE = re.compile(r"(?:\b|_)(?:USER|LOGNAME|USERNAME|user|username)=[\"']?([A-Za-z_][\w.-]{0,63})")
_HOST_VARIABLE = re.compile(
    r"(?:\b|_)(?:HOST|HOSTNAME|NODENAME|COMPUTERNAME|[Hh]ostname|[Nn]odename)[\"']?[=:]\s{0,4}[\"']?([A-Za-z0-9][\w.-]{0,252})"
)
_PROMPT = re.compile(r"(?<![\w.-])([a-z_][\w.-]{0,31})@([A-Za-z0-9][A-Za-z0-9.-]{0,63}):(?=~|/[^/])")
_UNAME = re.compile(r"\bLinux ([A-Za-z0-9][\w.-]{0,252}) \d+\.\d+\.\d")


@dataclass(frozen=True, slots=True)
class Names:
    """The users, hosts and home folders to hide, the most likely owner of the report first."""

    users: tuple[str, ...]
    hosts: tuple[str, ...]
    homes: tuple[str, ...]

    @classmethod
    def learned(cls, text: str, identity: Identity) -> Names:
        """The names that `identity` gives and those that stand in the text where only a name can stand."""
        lower = text.lower()
        homes = [*identity.homes, *_found(_HOME_VARIABLE, text, lower, "home=")]
        prompts = _found(_PROMPT, text, lower, "@")
        folders = [posix or windows for posix, windows in _found(_HOME_FOLDER, text, lower, "/home/", "users")]
        own = [home.rstrip("/\\").replace("\\", "/").rpartition("/")[2] for home in homes]
        declared = _found(_USER_VARIABLE, text, lower, "user=", "username=", "logname=")
        users = [*identity.users, *own, *folders, *declared, *(user for user, _ in prompts)]
        hosts = [*identity.hosts, *_found(_HOST_VARIABLE, text, lower, "host", "node", "computername")]
        hosts += [*(host for _, host in prompts), *_found(_UNAME, text, lower, "linux ")]
        short = [host.partition(".")[0] for host in hosts]
        return cls(
            _names(users, NOT_PEOPLE),
            _names([*hosts, *short], frozenset({"localhost"})),
            tuple(dict.fromkeys(home for home in homes if home.count("/") + home.count("\\") >= 2)),
        )


def _found(pattern: re.Pattern[str], text: str, lower: str, *needles: str) -> list[Any]:
    """What `findall` finds; the search is spared where the lower-case text has none of the needles."""
    return pattern.findall(text) if _holds(lower, needles) else []


def _holds(text: str, needles: Iterable[str]) -> bool:
    """Is one of the needles in the text?"""
    return any(map(text.__contains__, needles))


def _names(found: Iterable[str], never: frozenset[str]) -> tuple[str, ...]:
    cleaned = (name.strip(".-") for name in found)
    names = dict.fromkeys(name for name in cleaned if name and name not in never and not _NO_NAME.fullmatch(name))
    return tuple(names)[:MOST_NAMES]


# What is replaced

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|sk-(?=[\w-]{0,40}\d)[A-Za-z0-9_-]{16,}|xox[abprs]-[\w-]{10,}|nvapi-[\w-]{16,}|AIza[\w-]{30,}|pypi-[\w-]{20,}"
    r"|npm_[A-Za-z0-9]{20,}|dckr_pat_[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,})"
)
_TOKEN_STARTS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "akia", "asia", "sk-", "xox", "nvapi-"),
    *("aiza", "pypi-", "npm_", "dckr_pat_", "eyj", "ya29.", "sg."),
)
_SECRET_WORDS = (
    r"password|passwd|passphrase|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|apikey|access[_-]?key(?:[_-]?id)?"
    r"|private[_-]?key|auth[_-]?token|access[_-]?token|credentials?"
)
_ASSIGNED_SECRET = re.compile(
    rf"((?:{_SECRET_WORDS})[\"']?\s{{0,4}}[=:]\s{{0,4}}[\"']?|(?:token|signature|sig)=[\"']?|--(?:password|token|api-key)\s{{1,4}}[\"']?)"
    r"(?![$<%{])([^\s\"'&;,]+)",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(r"(\b(?:bearer|basic)\s{1,4})(?=[\w.~+/=-]{0,200}\d)([\w.~+/=-]{8,})", re.IGNORECASE)
_URL_LOGIN = re.compile(r"(?<=://)(?!git@|<redacted>@)[^\s/@]{1,200}@")
_UUID_SIGN = re.compile(r"-[0-9a-f]{4}-[0-9a-f]{4}-")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_SHORT_UUID = re.compile(r"\b(GPU-|MIG-)([0-9a-f]{4,8}(?:-[0-9a-f]{1,4}){0,3}(?:-[0-9a-f]{1,11})?)(?![\w-])", re.IGNORECASE)
_SERIAL = re.compile(
    r"(\bserial(?:[ _-]?(?:number|no))?[\"']?\s{0,40}[:=]\s{0,4}[\"']?)(?!serial-\d)(?=[A-Z-]{0,20}\d)([A-Z0-9][A-Z0-9-]{5,40})",
    re.IGNORECASE,
)
_MAC_SIGN = re.compile(r":[0-9a-f]{2}:[0-9a-f]{2}:")
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.+-])(?!git@)[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,6}\.[A-Za-z]{2,20}\b")
_ADDRESS_SIGN = re.compile(r"\.\d{1,3}\.\d{1,3}\.")
_ADDRESS = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]\d)")
_BEFORE_ADDRESS = ("://", "@", "inet ")
_AFTER_ADDRESS = re.compile(r":\d{2,5}\b")
_PRIVATE_NETWORK = re.compile(r"192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.")
_NO_MACHINE = ("127.", "0.")

SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:tokens?|secrets?|password|passwd|passphrase|api_?key|access_?key|private_?key|credentials?|auth|cookie)(?:$|[_.-])",
    re.IGNORECASE,
)
SERIAL_KEY = re.compile(r"(?:^|[_. -])serial(?:$|[_. -])", re.IGNORECASE)
_PRIVATE_KEY_WORDS = ("token", "secret", "passw", "passphrase", "key", "credential", "auth", "cookie", "serial")
"""Without one of these no key is a SECRET_KEY or SERIAL_KEY."""


_Replacement = Callable[[re.Match[str]], str] | str


class _Step(Struct, frozen=True):
    """One replacement; the pattern cannot match where none of `needles`, or no `sign`, is in the lower-case text."""

    pattern: re.Pattern[str]
    replace: _Replacement
    needles: tuple[str, ...] = ()
    sign: re.Pattern[str] | None = None

    def may_match(self, lower: str) -> bool:
        if self.sign is not None:
            return self.sign.search(lower) is not None
        return not self.needles or _holds(lower, self.needles)


class Redactor:
    """Replaces private parts of texts, with one set of pseudonyms."""

    def __init__(self, texts: Sequence[str], identity: Identity = NOBODY, public_words: Iterable[str] = ()) -> None:
        """Learns the names in `texts`; `public_words` are words that these texts need whatever they may name elsewhere."""
        joined = "\n".join(dict.fromkeys(texts))
        lower = joined.lower()
        self._names = Names.learned(joined, identity)
        self._pseudonyms = Pseudonyms()
        self._done: dict[str, str] = {}
        self._public_words = public_words
        for uuid in _UUID.findall(joined) if _UUID_SIGN.search(lower) else ():
            self._pseudonyms.of("uuid", uuid.lower())
        for name in self._names.users:
            self._pseudonyms.of("user", name)
        self._hosts = {name: self._pseudonyms.of("host", name.partition(".")[0].lower()) for name in self._names.hosts}
        self._steps = _needed([step for step in self._all_steps() if step.may_match(lower)], joined)
        self._keys_may_be_private = _holds(lower, _PRIVATE_KEY_WORDS)

    @property
    def changes_nothing(self) -> bool:
        """True where nothing private was found in the texts and no key among them (`key=value`) can be of a private value."""
        return not self._steps and not self._keys_may_be_private

    def text(self, text: str) -> str:
        """The text with everything private replaced; the very same object where nothing is."""
        if text not in self._done:
            new = text
            for step in self._steps:
                new = step.pattern.sub(step.replace, new)
            self._done[text] = new
        new = self._done[text]
        return text if new == text else new

    def of_key(self, key: str, text: str) -> str:
        """The value that stands under `key`, whose name may say what the value is."""
        if text and SECRET_KEY.search(key):
            return HIDDEN
        if text and SERIAL_KEY.search(key) and any(character.isdigit() for character in text):
            return self._pseudonyms.of("serial", text)
        return self.text(text)

    def _all_steps(self) -> list[_Step]:
        """Patterns and replacements in their order: secrets first, since a name may be a part of one."""
        homes = [re.compile(re.escape(home.rstrip("/\\")) + r"(?![\w.-])") for home in self._names.homes]
        return [
            _Step(_PRIVATE_KEY, HIDDEN, ("private key",)),
            _Step(_TOKEN, HIDDEN, _TOKEN_STARTS),
            _Step(_ASSIGNED_SECRET, rf"\1{HIDDEN}", ("pass", "secret", "key", "token", "credential", "sig")),
            _Step(_AUTHORIZATION, rf"\1{HIDDEN}", ("bearer", "basic")),
            _Step(_URL_LOGIN, f"{HIDDEN}@", ("@",)),
            _Step(_UUID, self._numbered("uuid"), sign=_UUID_SIGN),
            _Step(_SHORT_UUID, self._short_uuid, ("gpu-", "mig-")),
            _Step(_SERIAL, lambda match: match[1] + self._pseudonyms.of("serial", match[2]), ("serial",)),
            _Step(_MAC, self._numbered("mac"), sign=_MAC_SIGN),
            _Step(_EMAIL, self._numbered("email"), ("@",)),
            _Step(_ADDRESS, self._address, sign=_ADDRESS_SIGN),
            *(_Step(home, "~") for home in homes),
            _Step(_HOME_FOLDER, self._home_folder, ("/home/", "users")),
            *self._name_steps(),
        ]

    def _name_steps(self) -> Iterator[_Step]:
        """Whole-word replacement of distinctive names; of the others only before an `@` and after `user=`."""
        words = {name: self._pseudonyms.of("user", name) for name in self._names.users} | self._hosts
        if not words:
            return
        public = ORDINARY_WORDS.union(word.lower() for word in self._public_words)
        clear = {name: alias for name, alias in words.items() if _is_distinctive(name, public)}
        unclear = {name: alias for name, alias in words.items() if name not in clear}
        if clear:
            pattern = _any_of(clear, r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])")
            yield _Step(pattern, lambda match: clear[match[0]])
        if unclear:
            pattern = _any_of(unclear, r"(?:(?<![\w.-])(?=[\w.-]{1,64}@)|(?<=\buser=)|(?<=\bUSER=)|(?<=\w@))", r"(?![\w-])")
            yield _Step(pattern, lambda match: unclear[match[0]], ("@", "user="))

    def _numbered(self, kind: str) -> Callable[[re.Match[str]], str]:
        return lambda match: self._pseudonyms.of(kind, match[0].lower())

    def _address(self, match: re.Match[str]) -> str:
        """A pseudonym where the surroundings or a private network show that the four numbers are no version."""
        before, after = match.string[max(match.start() - 5, 0) : match.start()], match.string[match.end() : match.end() + 7]
        is_address = before.endswith(_BEFORE_ADDRESS) or _AFTER_ADDRESS.match(after) or _PRIVATE_NETWORK.match(match[0])
        return self._pseudonyms.of("ip", match[0]) if is_address and not match[0].startswith(_NO_MACHINE) else match[0]

    def _short_uuid(self, match: re.Match[str]) -> str:
        """A UUID abbreviated as CUDA_VISIBLE_DEVICES allows gets the pseudonym of the whole one."""
        start = match[2].lower()
        for whole in self._pseudonyms.known("uuid"):
            if whole.startswith(start):
                return match[1] + self._pseudonyms.of("uuid", whole)
        return match[1] + self._pseudonyms.of("uuid", start) if len(start) >= 8 else match[0]

    def _home_folder(self, match: re.Match[str]) -> str:
        """`~` for the home folder of the report's owner; for another's, or one within another tree, the path with a pseudonym."""
        name = match[1] or match[2]
        if name in NOT_PEOPLE or _PSEUDONYM.fullmatch(name):
            return match[0]
        within = match.start() > 0 and (match.string[match.start() - 1].isalnum() or match.string[match.start() - 1] in "._-/\\")
        if not within and self._names.users and name == self._names.users[0]:
            return "~"
        return match[0][: -len(name)] + self._pseudonyms.of("user", name)


def _needed(steps: list[_Step], joined: str) -> list[_Step]:
    """The steps from the first that finds something on: one after it may find something in what it leaves."""
    first = next((number for number, step in enumerate(steps) if step.pattern.search(joined)), len(steps))
    return steps[first:]


def _is_distinctive(name: str, public: frozenset[str]) -> bool:
    return len(name) >= SHORTEST_NAME and any(map(str.isalpha, name)) and name.lower() not in public


def _any_of(names: Iterable[str], before: str, after: str) -> re.Pattern[str]:
    """Any of the names, the longest that fits."""
    return re.compile(before + "(?:" + "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) + ")" + after)
