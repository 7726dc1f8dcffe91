"""Long commands on several lines that a shell still reads as one."""

from __future__ import annotations

from rich.cells import cell_len

CONTINUATION_INDENT = "  "


def shell_lines(command: str, width: int) -> list[str]:
    """The command in lines of at most `width` columns, joined by `\\`, where its words allow; whole where cutting is risky."""
    if cell_len(command) <= width or any(character in command for character in "#\n\\`"):
        return [command]
    lines = [""]
    for word in _words(command):
        joined = f"{lines[-1]} {word}" if lines[-1].strip() else lines[-1] + word
        if cell_len(joined) + 2 > width and lines[-1].strip():
            lines.append(CONTINUATION_INDENT + word)
        else:
            lines[-1] = joined
    kept = _options_with_their_values(lines, width)
    return [*(f"{line} \\" for line in kept[:-1]), kept[-1]]


def _words(command: str) -> list[str]:
    """The command cut at spaces outside quotes."""
    words, quote = [""], ""
    for character in command:
        if character == " " and not quote:
            words.append("")
            continue
        words[-1] += character
        if character in "'\"" and quote in ("", character):
            quote = "" if quote else character
    return [word for word in words if word]


def _options_with_their_values(lines: list[str], width: int) -> list[str]:
    """The lines, an option at the end of one moved to the front of the next, where its value is, if there is room."""
    kept = list(lines)
    for number in range(len(kept) - 1):
        head, _, last = kept[number].rpartition(" ")
        together = f"{CONTINUATION_INDENT}{last} {kept[number + 1].strip()}"
        is_option = last.startswith("--") and not any(character in last for character in "='\"")
        if is_option and head.strip() and cell_len(together) + 2 <= width:
            kept[number], kept[number + 1] = head, together
    return kept
