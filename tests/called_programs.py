"""Which outside programs are called by their bare names: read from Python's syntax tree and from shell's lines.

What is built or fetched here is called by its path, and a path is no name. Python counts as calling what is the first
word of a command that reaches `subprocess`, `asyncio`'s twin of it, `shutil.which`, or a function of ours that hands
its argument on to one of these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

STARTERS: Final = {
    ("asyncio", "create_subprocess_exec"),
    ("shutil", "which"),
    *(("subprocess", name) for name in ("Popen", "call", "check_call", "check_output", "run")),
}
"""What of the standard library takes a command, or a program's name, as its first argument."""

ARITHMETIC: Final = re.compile(r"\$\(\(.*?\)\)")
PROGRAM: Final = re.compile(r"[A-Za-z][\w.+-]*")


def words(text: str) -> set[str]:
    return set(text.split())


KEYWORDS: Final = words(
    "if then else elif fi for while until do done case esac in function select time { } ! [[ ]]"
)
BUILTINS: Final = words(
    "[ : . alias break cd command continue declare echo eval exec exit export false getopts hash"
    " jobs kill local mapfile popd printf pushd pwd read readonly return set shift shopt source test times"
    " trap true type ulimit umask unset wait"
)
BEFORE_A_COMMAND: Final = {
    "if": 0, "then": 0, "else": 0, "elif": 0, "while": 0, "until": 0, "do": 0, "!": 0, "{": 0, "time": 0, "exec": 0,
    "as_root": 0, "nohup": 0, "setsid": 0, "env": 0, "xargs": 0, "timeout": 1, "chroot": 1,
}  # fmt: skip
"""Words after which the next word is a program too, and how many of its own arguments come between."""


def called_in_python(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(program, file) of Python files, from their names and texts."""
    modules = {name: _Module(ast.parse(text)) for name, text in texts.items()}
    by_stem: dict[str, list[_Module]] = {}
    for name, module in modules.items():
        by_stem.setdefault(Path(name).stem, []).append(module)
    while sum(module.learn(by_stem) for module in modules.values()):
        pass
    for name, module in modules.items():
        for program in module.programs():
            yield program, name


class _Module:
    """One file: which of the functions that it knows by name start the program that is their first argument."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = [
            node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        everything = list(ast.walk(tree))
        self._imports = [
            (node.module.rpartition(".")[2], alias.name)
            for node in everything
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        ]
        methods = [node for node in everything if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        # The module's own lines come as the scope of what is called outside functions.
        self._scopes = [(scope, _calls(scope)) for scope in (tree, *methods)]
        self._starters: set[str] = set()

    def learn(self, by_stem: Mapping[str, Iterable[_Module]]) -> bool:
        """Whether more starters are known than before: functions that hand their first argument on, and imports."""
        known = len(self._starters)
        for node in self._functions:
            arguments = [a.arg for a in (*node.args.args, *filter(None, [node.args.vararg]))]
            if arguments and any(
                arguments[0] in _variables(command)
                for call in _calls(node)
                for command in self._commands(call)
            ):
                self._starters.add(node.name)
        for stem, imported in self._imports:
            if any(imported in module._starters for module in by_stem.get(stem, ())):
                self._starters.add(imported)
        return len(self._starters) > known

    def programs(self) -> Iterator[str]:
        for scope, calls in self._scopes:
            for command in (command for call in calls for command in self._commands(call)):
                values = [command]
                for variable in _variables(command):
                    values += _assigned(scope, variable)
                for value in values:
                    first = value.elts[0] if isinstance(value, ast.List | ast.Tuple) and value.elts else value
                    if isinstance(first, ast.Constant) and PROGRAM.fullmatch(str(first.value)):
                        yield str(first.value)

    def _commands(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call that are commands or their first words."""
        if self._starts(call.func):
            return list(call.args[:1])
        # `asyncio.to_thread(subprocess.run, command)`
        pairs = zip(call.args, call.args[1:], strict=False)
        return [after for before, after in pairs if self._starts(before)]

    def _starts(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute):
            owner = function.value
            return isinstance(owner, ast.Name) and (owner.id, function.attr) in STARTERS
        return isinstance(function, ast.Name) and function.id in self._starters


def _calls(scope: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(scope) if isinstance(node, ast.Call)]


def _variables(command: ast.expr) -> set[str]:
    """The variable that is a command, or its first word."""
    if isinstance(command, ast.List | ast.Tuple) and command.elts:
        command = command.elts[0]
    if isinstance(command, ast.Starred):
        command = command.value
    return {command.id} if isinstance(command, ast.Name) else set()


def _assigned(scope: ast.AST, variable: str) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
                yield node.value


def called_in_shell(text: str) -> set[str]:
    """The words at the places of commands, without shell's own and the script's own functions."""
    text = re.sub(r"<<-? ?(['\"]?)(\w+)\1([^\n]*)\n.*?^\s*\2$", r"\3", text, flags=re.DOTALL | re.MULTILINE)
    own = set(re.findall(r"^\s*(\w+) ?\(\)", text, re.MULTILINE))
    found = set(re.findall(r"\bcommand -v ([\w.+-]+)", text))
    lists, _ = _ShellText(text.replace("\\\n", " ")).unquoted(0)
    for line in re.split(r"\n|;|&&|\|\|?|(?<![>&<])&(?![>&])", lists):
        found |= _words_that_run(line.split())
    return {word for word in found if word not in own | KEYWORDS | BUILTINS and PROGRAM.fullmatch(word)}


class _ShellText:
    """Shell with its quoted text taken out, and with each `$(...)` and `(...)` on lines of its own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def unquoted(self, start: int) -> tuple[str, int]:
        """From `start` to the parenthesis that closes it, or to the end; and the place after that."""
        text, at, out, inner = self._text, start, "", ""
        while at < len(text):
            if quoted := re.compile(r"\\.|'[^']*'|\$\(\(.*?\)\)|(?<==)\([^()]*\)").match(text, at):
                out, at = out + "0", quoted.end()
            elif comment := re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE).match(text, at):
                at = comment.end()
            elif text[at] == '"':
                more, at = self._double_quoted(at + 1)
                out, inner = out + "0", inner + more
            elif opened := re.compile(r"[$<>]?\((?!\))").match(text, at):
                more, at = self.unquoted(opened.end())
                out, inner = out + "0", inner + "\n" + more
            elif text.startswith("()", at):
                out, at = out.rpartition("\n")[0] + "\n", at + 2  # the name of a function
            elif text[at] == ")" and start > 0:
                return out + inner, at + 1
            elif text[at] == ")":
                # A pattern of `case`, which is no command.
                out, at = out[: 1 + max(out.rfind("\n"), out.rfind(";"))] + ";", at + 1
            else:
                if text[at] == "\n":
                    inner, out = "", out + inner
                out, at = out + text[at], at + 1
        return out + "\n" + inner, at

    def _double_quoted(self, start: int) -> tuple[str, int]:
        """The scripts in what a quotation mark opened, and the place after the one that closes it."""
        at, inner = start, ""
        while self._text[at] != '"':
            if number := ARITHMETIC.match(self._text, at):
                at = number.end()
            elif self._text.startswith("$(", at):
                more, at = self.unquoted(at + 2)
                inner += "\n" + more
            else:
                at += 2 if self._text[at] == "\\" else 1
        return inner, at + 1


def _words_that_run(line: list[str]) -> set[str]:
    found = set()
    while line:
        word = line.pop(0)
        if re.match(r"\w+\+?=", word) or (found and word.startswith("-")):
            continue
        found.add(word)
        if word not in BEFORE_A_COMMAND:
            break
        while line and line[0].startswith("-"):
            line.pop(0)
        del line[: BEFORE_A_COMMAND[word]]
    return found


def is_shell(path: Path, text: str) -> bool:
    return path.suffix == ".sh" or re.match(r"#!(/usr/bin/env bash|/bin/sh)", text) is not None


def recipes_of(makefile: str) -> str:
    """The recipes of a Makefile as a script."""
    text = re.sub(r"(?<!\$)\$\((?:[^()]|\([^()]*\))*\)", "0", makefile)
    lines = re.findall(r"^\t[@-]*(.*(?:\\\n.*)*)", text, re.MULTILINE)
    return "\n".join(line.replace("$$", "$") for line in lines)
