"""Search spaces of image classifiers, resolved late so that listing them needs no torch."""

SPACES: dict[str, str] = {
    "darts7": "proxnas.domains.images.spaces.cnn:darts7",
    "darts8": "proxnas.domains.images.spaces.cnn:darts8",
    "nasp12": "proxnas.domains.images.spaces.cnn:nasp12",
    "nasp12-full": "proxnas.domains.images.spaces.cnn:nasp12_full",
    "nasbench201": "proxnas.domains.images.spaces.nasbench201:NasBench201",
    "resnet": "proxnas.domains.images.spaces.resnet:ResNet",
    "mobile": "proxnas.domains.images.spaces.mobile:MobileSpace",
    "enas5": "proxnas.domains.images.spaces.enas5:Enas5",
}
"""Name -> 'module:what makes it'."""
