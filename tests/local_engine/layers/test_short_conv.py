import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from local_engine.layers.short_conv import short_conv


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_causal_convolution_of_each_channel(bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, offset = torch.randn(2, 9, 5), torch.randn(3, 5), torch.randn(5) if bias else None
    output, tail = short_conv(x, torch.zeros(2, 2, 5), weight, offset)
    expected = F.conv1d(x.transpose(1, 2), weight.T.unsqueeze(1), offset, padding=2, groups=5)[..., :9]
    torch.testing.assert_close(output, expected.transpose(1, 2))
    assert torch.equal(tail, x[:, -2:])


def test_cut_anywhere_it_gives_the_same_numbers() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(1, 9, 5), torch.randn(4, 5)
    begin = torch.zeros(1, 3, 5)
    whole, last = short_conv(x, begin, weight)
    for cut in range(1, 9):
        first, tail = short_conv(x[:, :cut], begin, weight)
        second, end = short_conv(x[:, cut:], tail, weight)
        assert torch.equal(torch.cat((first, second), 1), whole)
        assert torch.equal(end, last)
