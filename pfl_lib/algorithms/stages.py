"""The stages of SPFL and PLGA: parts of a model that get weights of their own."""


def split_stages(fed, stages):
    """1: the whole model; 2: all layers but the last, and the last.  A list of slices.

    A model of a single layer has one stage in either case.
    """
    last = fed.layers[-1][1].start
    return [slice(0, last), slice(last, fed.d)] if stages == 2 and last else [slice(0, fed.d)]
