"""Masks what must never be echoed: tokens and passwords that people paste without noticing."""

from __future__ import annotations

import re

MASK = "<masked>"

_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,64}|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{16,64}"
    r"|AKIA[0-9A-Z]{12,20}|ASIA[0-9A-Z]{12,20}|sk-[A-Za-z0-9_-]{20,200}|xox[abprs]-[A-Za-z0-9-]{10,200}|AIza[0-9A-Za-z_-]{30,45}"
    r"|npm_[A-Za-z0-9]{30,40}|pypi-[A-Za-z0-9_-]{20,255}|nvapi-[A-Za-z0-9_-]{20,200}"
    r"|eyJ[A-Za-z0-9_-]{10,500}\.[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,500})"
)
_ASSIGNED = re.compile(
    r"(?P<name>\b\w{0,60}(?:password|passwd|secret|token|api_?key|apikey|access_key"
    r"|credential)\w{0,40}[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
    r"(?P<value>[^\s\"',;]{4,300})",
    re.IGNORECASE,
)
_URL_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+]{1,10}://)[^\s/@:]{1,100}:[^\s/@]{1,200}@")
_TOKEN_STARTS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "AKIA", "ASIA", "sk-", "xox", "AIza", "npm_"),
    *("pypi-", "nvapi-", "eyJ"),
)
_NAMES = ("passw", "secret", "token", "key", "credential")


def masked(text: str) -> str:
    """The text with tokens, passwords and logins in addresses replaced; everything else as it is."""
    if any(map(text.__contains__, _TOKEN_STARTS)):
        text = _TOKEN.sub(MASK, text)
    if "@" in text:
        text = _URL_LOGIN.sub(rf"\g<scheme>{MASK}@", text)
    if any(map(text.casefold().__contains__, _NAMES)):
        text = _ASSIGNED.sub(rf"\g<name>{MASK}", text)
    return text
