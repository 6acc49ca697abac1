"""The three networks, small, in Stable Diffusion 1.5's layout: parameters bear the names they have
in a checkpoint, below the prefixes in PREFIX."""
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

PREFIX = {"unet": "model.diffusion_model.", "vae": "first_stage_model.",
          "clip": "cond_stage_model.transformer."}
LATENT_SCALE = 0.18215
HEADS = 8          # of every attention in the UNet
HEAD_WIDTH = 64    # of the text encoder's


# ---- text encoder ----

class ClipAttention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class ClipLayer(nn.Module):
    def __init__(self, width: int, mlp: int):
        super().__init__()
        self.self_attn = ClipAttention(width)
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, mlp), "fc2": nn.Linear(mlp, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        h = self.mlp["fc1"](self.layer_norm2(x))
        return x + self.mlp["fc2"](h * torch.sigmoid(1.702 * h))


class Clip(nn.Module):
    """ids [n,77] to [n,77,width]"""

    def __init__(self, vocab: int, width: int = 192, layers: int = 3, mlp: int = 384):
        super().__init__()
        self.text_model = nn.Module()
        self.text_model.embeddings = nn.ModuleDict({
            "token_embedding": nn.Embedding(vocab, width),
            "position_embedding": nn.Embedding(77, width)})
        self.text_model.encoder = nn.ModuleDict({
            "layers": nn.ModuleList(ClipLayer(width, mlp) for _ in range(layers))})
        self.text_model.final_layer_norm = nn.LayerNorm(width)
        for e in self.text_model.embeddings.values():
            nn.init.normal_(e.weight, std=0.05)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        e = self.text_model.embeddings
        # A product instead of a lookup: its gradient is one, too, which a GPU can record.
        w = e["token_embedding"].weight
        which = ids[..., None] == torch.arange(len(w), device=ids.device)
        x = which.to(w.dtype) @ w + e["position_embedding"].weight
        for layer in self.text_model.encoder["layers"]:
            x = layer(x)
        return self.text_model.final_layer_norm(x)


# ---- UNet ----

def time_wave(t: torch.Tensor, dim: int) -> torch.Tensor:
    half = dim // 2
    freq = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
    angle = t[:, None].float() * freq
    return torch.cat([angle.cos(), angle.sin()], -1)


class ResBlock(nn.Module):
    def __init__(self, ch: int, out: int, emb: int):
        super().__init__()
        self.in_layers = nn.Sequential(nn.GroupNorm(32, ch), nn.SiLU(),
                                       nn.Conv2d(ch, out, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, out))
        self.out_layers = nn.Sequential(nn.GroupNorm(32, out), nn.SiLU(), nn.Dropout(0.0),
                                        nn.Conv2d(out, out, 3, padding=1))
        self.skip_connection = nn.Conv2d(ch, out, 1) if ch != out else nn.Identity()
        nn.init.zeros_(self.out_layers[3].weight)

    def forward(self, x: torch.Tensor, emb: torch.Tensor) -> torch.Tensor:
        h = self.in_layers(x) + self.emb_layers(emb)[:, :, None, None]
        return self.skip_connection(x) + self.out_layers(h)


class CrossAttention(nn.Module):
    def __init__(self, ch: int, context: int):
        super().__init__()
        self.to_q = nn.Linear(ch, ch, bias=False)
        self.to_k = nn.Linear(context, ch, bias=False)
        self.to_v = nn.Linear(context, ch, bias=False)
        self.to_out = nn.Sequential(nn.Linear(ch, ch), nn.Dropout(0.0))

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for y in (self.to_q(x), self.to_k(context), self.to_v(context)))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(y.transpose(1, 2).flatten(2))


class GeGlu(nn.Module):
    def __init__(self, ch: int, out: int):
        super().__init__()
        self.proj = nn.Linear(ch, out * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.proj(x).chunk(2, -1)
        return x * F.gelu(gate)


class TransformerBlock(nn.Module):
    def __init__(self, ch: int, context: int):
        super().__init__()
        self.attn1, self.attn2 = CrossAttention(ch, ch), CrossAttention(ch, context)
        self.ff = nn.ModuleDict({"net": nn.Sequential(GeGlu(ch, 4 * ch), nn.Dropout(0.0),
                                                      nn.Linear(4 * ch, ch))})
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(ch) for _ in range(3))

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        x = x + self.attn1(h, h)
        x = x + self.attn2(self.norm2(x), context)
        return x + self.ff["net"](self.norm3(x))


class SpatialTransformer(nn.Module):
    def __init__(self, ch: int, context: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, ch, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(ch, ch, 1), nn.Conv2d(ch, ch, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(ch, context)])
        nn.init.zeros_(self.proj_out.weight)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        h = self.proj_in(self.norm(x))
        y = self.transformer_blocks[0](h.flatten(2).transpose(1, 2), context)
        return x + self.proj_out(y.transpose(1, 2).reshape(h.shape))


class Downsample(nn.Module):
    def __init__(self, ch: int):
        super().__init__()
        self.op = nn.Conv2d(ch, ch, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.op(x)


class Upsample(nn.Module):
    def __init__(self, ch: int):
        super().__init__()
        self.conv = nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Unet(nn.Module):
    """x [n,4,h,w], t [n] in 0..999, context [n,tokens,width] to eps [n,4,h,w].

    mult: channels of each level in units of `base`; res: res blocks of each level on the way
    down, one more on the way up; attention: which levels have transformers."""

    def __init__(self, context: int = 192, base: int = 64, mult: tuple = (1, 2, 2),
                 res: tuple = (1, 2, 1), attention: tuple = (False, True, False)):
        super().__init__()
        self.base, emb = base, 4 * base
        self.time_embed = nn.Sequential(nn.Linear(base, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.input_blocks = nn.ModuleList([nn.ModuleList([nn.Conv2d(4, base, 3, padding=1)])])
        ch, skips = base, [base]
        for level, m in enumerate(mult):
            for _ in range(res[level]):
                block = [ResBlock(ch, m * base, emb)]
                ch = m * base
                if attention[level]:
                    block.append(SpatialTransformer(ch, context))
                self.input_blocks.append(nn.ModuleList(block))
                skips.append(ch)
            if level + 1 < len(mult):
                self.input_blocks.append(nn.ModuleList([Downsample(ch)]))
                skips.append(ch)
        self.middle_block = nn.ModuleList([ResBlock(ch, ch, emb), SpatialTransformer(ch, context),
                                           ResBlock(ch, ch, emb)])
        self.output_blocks = nn.ModuleList()
        for level in reversed(range(len(mult))):
            for i in range(res[level] + 1):
                block = [ResBlock(ch + skips.pop(), mult[level] * base, emb)]
                ch = mult[level] * base
                if attention[level]:
                    block.append(SpatialTransformer(ch, context))
                if level > 0 and i == res[level]:
                    block.append(Upsample(ch))
                self.output_blocks.append(nn.ModuleList(block))
        self.out = nn.Sequential(nn.GroupNorm(32, ch), nn.SiLU(), nn.Conv2d(ch, 4, 3, padding=1))
        nn.init.zeros_(self.out[2].weight)

    @staticmethod
    def _run(block: nn.ModuleList, x: torch.Tensor, emb: torch.Tensor,
             context: torch.Tensor) -> torch.Tensor:
        for part in block:
            if isinstance(part, ResBlock):
                x = part(x, emb)
            elif isinstance(part, SpatialTransformer):
                x = part(x, context)
            else:
                x = part(x)
        return x

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        emb = self.time_embed(time_wave(t, self.base).to(self.time_embed[0].weight.dtype))
        skips = []
        for block in self.input_blocks:
            x = self._run(block, x, emb, context)
            skips.append(x)
        x = self._run(self.middle_block, x, emb, context)
        for block in self.output_blocks:
            x = self._run(block, torch.cat([x, skips.pop()], 1), emb, context)
        # At high noise eps is the input plus a little that decides everything: float32, also when
        # the rest is not.
        return self.out(x.float())

    @torch.no_grad()
    def turn(self, r: torch.Tensor) -> None:
        """For latents that Vae.turn(r) turned: the same pictures from them."""
        first, last = self.input_blocks[0][0], self.out[2]
        first.weight.copy_(torch.einsum("ochw,dc->odhw", first.weight, r))
        last.weight.copy_(torch.einsum("dc,cihw->dihw", r, last.weight))
        last.bias.copy_(r @ last.bias)


# ---- VAE ----

def _norm(ch: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, ch, eps=1e-6)


class VaeRes(nn.Module):
    def __init__(self, ch: int, out: int):
        super().__init__()
        self.norm1, self.conv1 = _norm(ch), nn.Conv2d(ch, out, 3, padding=1)
        self.norm2, self.conv2 = _norm(out), nn.Conv2d(out, out, 3, padding=1)
        if ch != out:
            self.nin_shortcut = nn.Conv2d(ch, out, 1)
        self.same = ch == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.same else self.nin_shortcut(x))


class VaeAttention(nn.Module):
    def __init__(self, ch: int):
        super().__init__()
        self.norm = _norm(ch)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(ch, ch, 1) for _ in range(4))
        nn.init.zeros_(self.proj_out.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        q, k, v = (f(h).flatten(2).transpose(1, 2)[:, None] for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).reshape(h.shape)
        return x + self.proj_out(y)


def _middle(ch: int) -> nn.ModuleDict:
    return nn.ModuleDict({"block_1": VaeRes(ch, ch), "attn_1": VaeAttention(ch),
                          "block_2": VaeRes(ch, ch)})


def _through_middle(mid: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    return mid["block_2"](mid["attn_1"](mid["block_1"](x)))


class VaeDown(nn.Module):
    def __init__(self, ch: int):
        super().__init__()
        self.conv = nn.Conv2d(ch, ch, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Encoder(nn.Module):
    def __init__(self, ch: int, mult: tuple, res: int):
        super().__init__()
        self.conv_in = nn.Conv2d(3, ch, 3, padding=1)
        self.down = nn.ModuleList()
        at = ch
        for i, m in enumerate(mult):
            level = nn.Module()
            level.block = nn.ModuleList()
            for _ in range(res):
                level.block.append(VaeRes(at, m * ch))
                at = m * ch
            if i + 1 < len(mult):
                level.downsample = VaeDown(at)
            self.down.append(level)
        self.mid = _middle(at)
        self.norm_out, self.conv_out = _norm(at), nn.Conv2d(at, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv_in(x)
        for i, level in enumerate(self.down):
            for block in level.block:
                x = block(x)
            if i + 1 < len(self.down):
                x = level.downsample(x)
        return self.conv_out(F.silu(self.norm_out(_through_middle(self.mid, x))))


class Decoder(nn.Module):
    def __init__(self, ch: int, mult: tuple, res: int):
        super().__init__()
        at = mult[-1] * ch
        self.conv_in = nn.Conv2d(4, at, 3, padding=1)
        self.mid = _middle(at)
        levels = []
        for i in reversed(range(len(mult))):
            level = nn.Module()
            level.block = nn.ModuleList()
            for _ in range(res + 1):
                level.block.append(VaeRes(at, mult[i] * ch))
                at = mult[i] * ch
            if i > 0:
                level.upsample = Upsample(at)
            levels.append(level)
        self.up = nn.ModuleList(levels[::-1])
        self.norm_out, self.conv_out = _norm(at), nn.Conv2d(at, 3, 3, padding=1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = _through_middle(self.mid, self.conv_in(z))
        for i in reversed(range(len(self.up))):
            for block in self.up[i].block:
                x = block(x)
            if i > 0:
                x = self.up[i].upsample(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Vae(nn.Module):
    """Pictures in -1..1 to latents of an eighth of the side, and back."""

    def __init__(self, ch: int = 32, mult: tuple = (1, 2, 2, 3), res: int = 1):
        super().__init__()
        self.encoder, self.decoder = Encoder(ch, mult, res), Decoder(ch, mult, res)
        self.quant_conv, self.post_quant_conv = nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)

    def moments(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, logvar = self.quant_conv(self.encoder(x)).chunk(2, 1)
        return mean, logvar.clamp(-30, 20)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.moments(x)[0]

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.post_quant_conv(z))

    @torch.no_grad()
    def rescale(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        """Makes latents (z - mean) / std / LATENT_SCALE, by way of the two 1x1 convolutions: as
        seen by the UNet they then have mean 0 and deviation 1."""
        by = 1 / (std * LATENT_SCALE)
        q, p = self.quant_conv, self.post_quant_conv
        q.weight[:4] *= by[:, None, None, None]
        q.bias[:4] = (q.bias[:4] - mean) * by
        q.bias[4:] += 2 * by.log()  # the deviation grows with the mean
        p.bias += (p.weight[:, :, 0, 0] @ mean)
        p.weight /= by[None, :, None, None]

    @torch.no_grad()
    def turn(self, r: torch.Tensor) -> None:
        """Latents become r @ latents, r orthogonal [4,4]. Their deviations, which nothing but
        training reads, stay with their channels."""
        q, p = self.quant_conv, self.post_quant_conv
        q.weight[:4] = torch.einsum("dc,cihw->dihw", r, q.weight[:4])
        q.bias[:4] = r @ q.bias[:4]
        p.weight.copy_(torch.einsum("ochw,dc->odhw", p.weight, r))


def parameters(m: nn.Module) -> int:
    return sum(p.numel() for p in m.parameters())


if __name__ == "__main__":
    parts = {"clip": Clip(900), "unet": Unet(), "vae": Vae()}
    for name, net in parts.items():
        print(name, parameters(net))
    print("all, MB as float16", sum(map(parameters, parts.values())) * 2 / 1e6)
