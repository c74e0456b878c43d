"""From what somebody asks for to the options of a search.

Defaults come in layers, each over the one before: what the options are declared with (a method's
own among them), the protocol (sizes), the method's for others, a table, the preset (what was
published). What is asked for stands over all of them, a file below the rest. What is stored in
config.json is the outcome, so a run can be repeated whatever the defaults become.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from proxnas import methods
from proxnas.common.errors import OptionError
from proxnas.common.options import Parts, build, flat_hints, flatten
from proxnas.domains.spaces import traits_of
from proxnas.methods.options import MethodOptions
from proxnas.searching.options import SearchOptions, without_foreign
from proxnas.searching.own_options import BY_ITSELF, What
from proxnas.searching.owners import domain_options, parts_for

RATES = ("learning_rate", "learning_rate_min")
"""Ends of the names of options that are rates, of w or of A."""
BY_TABLE = {"evaluations": 1000, "epochs": 10}
"""Looking a cell up costs nothing, so there are as many as published comparisons on tables have."""


class SearchDefaults(NamedTuple):
    """What a search has where nobody asks for anything else."""

    parts: Parts
    values: dict[str, Any]
    """What stands over what the parts declare."""

    def options(self) -> SearchOptions:
        """Without anything that is asked for."""
        return build(SearchOptions, self.values, self.parts)


def resolve(asked: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> SearchOptions:
    """The options of a search: defaults, the file, what is asked for. An InputError for what would
    do nothing in it."""
    below = below_flags(asked, file or {})
    options = build(SearchOptions, below.values | known_values(asked, below), below.parts)
    check_asked(options, default_values(asked, file or {}))
    return options


def known_values(asked: Mapping[str, Any], below: SearchDefaults) -> dict[str, Any]:
    """What is asked for, if the method and the domain have it."""
    values = below.values
    return without_foreign(asked, values["space"], values["method"])


def below_flags(asked: Mapping[str, Any], file: Mapping[str, Any]) -> SearchDefaults:
    """The defaults with the file over them: where a command line starts from."""
    chosen = dict(file) | dict(asked)
    preset = chosen.get("preset", What.preset)
    if preset != file.get("preset", preset):
        # what is asked for stands over the file, so what it sets does too
        presets = methods.options_of(chosen.get("method", What.method)).presets.values()
        set_by_presets = {name for values in presets for name in values}
        file = {name: value for name, value in file.items() if name not in set_by_presets}
    defaults = defaults_for(chosen)
    named = {name: defaults.values[name] for name in ("space", "method", "protocol")}
    file = without_foreign(dict(file) | named, named["space"], named["method"])
    return SearchDefaults(defaults.parts, defaults.values | file)


def defaults_for(chosen: Mapping[str, Any]) -> SearchDefaults:
    """The defaults that the data, the space, the method, the protocol and the preset bring."""
    space, method = chosen.get("space", What.space), chosen.get("method", What.method)
    parts, domain = parts_for(space, method), domain_options(space)
    own = methods.options_of(method)
    what = What(  # names that do not exist are told first
        chosen.get("data", What.data),
        space,
        method,
        chosen.get("preset", What.preset),
        chosen.get("protocol", What.protocol),
    )
    protocol = what.protocol if what.protocol != "auto" else domain.choose_protocol(what.data)
    # from here on each layer stands over the ones before it
    values = domain.sizes(protocol, space)
    if own.traits.refines:
        values["refine"] = BY_ITSELF if traits_of(space).refined else 0
        values["wiring"] = "auto" if traits_of(space).wired else "free"
    values |= _of_method(own, domain.own_rates, values) | domain.fixed(space)
    if chosen.get("evaluate") == "table" and own.traits.samples_cells:
        values |= BY_TABLE
    if what.preset != "default":
        # published for images: rates that are the domain's own stand over them
        for name, value in own.presets[what.preset].items():
            if not (domain.own_rates and name.endswith(RATES)):
                values[name] = value
    # a layer may name options that this method or domain does not have
    names = flat_hints(SearchOptions, parts)
    values = {name: value for name, value in values.items() if name in names}
    return SearchDefaults(parts, values | {"space": space, "method": method, "protocol": protocol})


def _of_method(
    own: type[MethodOptions], own_rates: bool, values: Mapping[str, Any]
) -> dict[str, Any]:
    """A method's defaults for others; its rates are those for images."""
    return {
        name: value for name, value in own.defaults.items() if not own_rates or name not in values
    }


def default_values(asked: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> what every option would be if nobody asked for anything but what chooses the
    layers."""
    return flatten(defaults_for(dict(file) | dict(asked)).options())


def asked_of(options: SearchOptions, defaults: Mapping[str, Any]) -> list[str]:
    """The options that somebody has set to other values than they would have."""
    # asked for with the value that it has anyway is not asked for
    return [name for name, value in flatten(options).items() if defaults.get(name, value) != value]


def check_asked(options: SearchOptions, defaults: Mapping[str, Any]) -> None:
    """An InputError for options that somebody asked for and that would do nothing beside the
    others."""
    for name in idle_among(options, asked_of(options, defaults)):
        advice = f"does nothing for {options.method} {options.idle()[name]}: leave it out"
        raise OptionError(name, getattr(options, name), advice)


def idle_among(options: SearchOptions, names: Iterable[str]) -> list[str]:
    """Those of the options that do nothing in this search."""
    idle = options.idle()
    return [name for name in names if name in idle]
