"""Architectures that differ from Llama in little: shapes that `tiny_oracles` has not, older files, and refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("GraniteForCausalLM", {"tie_word_embeddings": True, "residual_multiplier": 2.5}),
        ("Starcoder2ForCausalLM", {"use_bias": False, "tie_word_embeddings": True, "sliding_window": None}),
        ("ArceeForCausalLM", {"mlp_bias": False}),
        ("Olmo2ForCausalLM", {"num_key_value_heads": 4}),
        ("Olmo3ForCausalLM", {"layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"]}),
        ("Glm4ForCausalLM", {"head_dim": 8, "attention_bias": False}),
        ("CohereForCausalLM", {"num_key_value_heads": 1}),
        ("Cohere2ForCausalLM", {"num_hidden_layers": 8}),
        ("SeedOssForCausalLM", {"attention_out_bias": True, "mlp_bias": True}),
        ("Ernie4_5ForCausalLM", {"use_bias": True, "tie_word_embeddings": True}),
        ("HunYuanDenseV1ForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
        ("Qwen2MoeForCausalLM", {"num_experts_per_tok": 3, "qkv_bias": False}),
        ("Glm4MoeForCausalLM", {"n_group": 3, "topk_group": 2, "n_shared_experts": 2, "norm_topk_prob": False}),
        ("DeepseekV2ForCausalLM", {"topk_method": "greedy", "q_lora_rank": 24}),
        (
            "DeepseekV3ForCausalLM",
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "n_group": 1, "topk_group": 1},
        ),
        ("Exaone4ForCausalLM", {"sliding_window": None, "layer_types": ["full_attention"] * 5}),
        ("OlmoeForCausalLM", {"attention_bias": True, "num_experts_per_tok": 3}),
        ("Dots1ForCausalLM", {"sliding_window": None, "first_k_dense_replace": 0, "norm_topk_prob": False}),
        ("MiniMaxM2ForCausalLM", {"rotary_dim": 16, "num_experts_per_tok": 3}),
        ("Ernie4_5_MoeForCausalLM", {"moe_layer_interval": 1, "moe_num_shared_experts": 0}),
        ("HunYuanMoEV1ForCausalLM", {"moe_topk": 3, "tie_word_embeddings": True}),
        ("ExaoneMoeForCausalLM", {"num_shared_experts": 2, "first_k_dense_replace": 2}),
        ("ApertusForCausalLM", {"tie_word_embeddings": True}),
        ("NemotronForCausalLM", {"attention_bias": True, "mlp_bias": True}),
        ("StableLmForCausalLM", {"use_parallel_residual": True, "use_qkv_bias": False}),
        ("Llama4ForCausalLM", {"attention_chunk_size": 4, "floor_scale": 3, "num_experts_per_tok": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_shape_answers_as_transformers_from_both_formats(
    name: str, variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(name, **variant), tmp_path)


def rewritten(folder: Path, name: str, values: dict[str, Any], **overrides: Any) -> Any:
    """The oracle, whose config.json in the folder has these values besides."""
    oracle = oracle_of(name, **overrides)
    config = write_safetensors(oracle, folder) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    return oracle


@pytest.mark.parametrize(
    ("name", "values", "overrides"),
    [
        ("Glm4ForCausalLM", {"rope_parameters": None, "partial_rotary_factor": 0.5, "rope_theta": 1e4}, {}),
        ("Glm4ForCausalLM", {"rope_parameters": None}, {}),
        (
            "HunYuanDenseV1ForCausalLM",
            {"rope_parameters": None, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "alpha": 50.0}},
            {},
        ),
        (
            "Olmo3ForCausalLM",
            {
                "rope_parameters": None,
                "rope_theta": 1e4,
                "layer_types": None,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                    "attention_factor": 1.2,
                },
            },
            {},
        ),
        ("Cohere2ForCausalLM", {"layer_types": None, "sliding_window_pattern": 4}, {}),
        ("Llama4ForCausalLM", {"no_rope_layers": [], "layer_types": None, "moe_layers": None}, {}),
        ("Llama4ForCausalLM", {"attn_temperature_tuning": 4}, {}),
        ("Glm4MoeLiteForCausalLM", {"mlp_layer_types": None, "first_k_dense_replace": 1}, {}),
        ("Glm4MoeLiteForCausalLM", {}, {"mlp_layer_types": ["sparse", "dense", "sparse"]}),
        # As Kimi K2's files are.
        (
            "DeepseekV3ForCausalLM",
            {"model_type": "kimi_k2", "n_group": 1, "topk_group": 1},
            {"n_group": 1, "topk_group": 1},
        ),
        ("ApertusForCausalLM", {"rope_parameters": None}, {"rope_parameters": None}),
        ("StableLmForCausalLM", {"rope_parameters": None, "partial_rotary_factor": 0.5}, {}),
        ("Llama4ForCausalLM", {"attn_temperature_tuning": 0}, {"attn_temperature_tuning": False}),
        ("Llama4ForCausalLM", {}, {"use_qk_norm": False, "attention_chunk_size": None, "moe_layers": [1, 2]}),
        ("Exaone4ForCausalLM", {"layer_types": None, "sliding_window_pattern": 4}, {}),
        ("ExaoneMoeForCausalLM", {"layer_types": None, "mlp_layer_types": None}, {}),
        (
            "HunYuanMoEV1ForCausalLM",
            {"moe_topk": [2, 2], "moe_intermediate_size": [64, 64], "num_shared_expert": [1, 1]},
            {},
        ),
        (
            "Lfm2ForCausalLM",
            {"layer_types": None, "full_attn_idxs": [1, 4], "intermediate_size": None, "block_ff_dim": 50},
            {
                "block_auto_adjust_ff_dim": True,
                "block_multiple_of": 16,
                "block_ffn_dim_multiplier": 1.5,
                "intermediate_size": 50,
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_of_an_older_version_of_transformers_is_the_same_model(
    name: str, values: dict[str, Any], overrides: dict[str, Any], tmp_path: Path
) -> None:
    oracle = rewritten(tmp_path, name, values, **overrides)
    ours = logits_of(load_model(tmp_path, EngineConfig()), PROMPTS[0])
    assert ours.allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("GraniteForCausalLM", {"residual_multiplier": 0}, "residual_multiplier is 0, expected a number from 2^-20"),
        ("GraniteMoeHybridForCausalLM", {"layer_types": ["attention"]}, "layer_types has 1 items for 2 layers"),
        ("GraniteMoeHybridForCausalLM", {"layer_types": ["attention", "conv"]}, "layer_types has 'conv'"),
        ("Lfm2ForCausalLM", {"layer_types": ["conv"]}, "layer_types has 1 items for 5 layers"),
        ("Lfm2ForCausalLM", {"layer_types": ["conv"] * 4 + ["mamba"]}, "layer_types has 'mamba'"),
        ("Lfm2ForCausalLM", {"block_auto_adjust_ff_dim": True, "block_multiple_of": 0}, "block_multiple_of is 0"),
        (
            "Lfm2ForCausalLM",
            {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1e400},
            "block_ffn_dim_multiplier inf",
        ),
        ("Starcoder2ForCausalLM", {"hidden_act": "gelu"}, "hidden_act 'gelu', expected 'gelu_pytorch_tanh'"),
        ("ArceeForCausalLM", {"hidden_act": "silu"}, "hidden_act 'silu', expected 'relu2'"),
        ("GraniteForCausalLM", {"logits_scaling": 1e30}, "logits_scaling is 1e+30, expected a number from 2^-20"),
        ("CohereForCausalLM", {"use_qk_norm": True}, "use_qk_norm is true"),
        ("CohereForCausalLM", {"logit_scale": -1.0}, "logits_scale is -1.0, expected a positive number"),
        ("Cohere2ForCausalLM", {"layer_types": None, "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        (
            "Exaone4ForCausalLM",
            {"layer_types": None, "sliding_window_pattern": "LLLG"},
            "sliding_window_pattern is str",
        ),
        ("Exaone4ForCausalLM", {"layer_types": None, "sliding_window_pattern": -1}, "sliding_window_pattern is -1"),
        ("Glm4MoeForCausalLM", {"n_group": 4}, "1 of 4 groups of 6 experts cannot be"),
        ("Glm4MoeForCausalLM", {"n_group": 6}, "2 experts a token are more than 1 groups have"),
        ("Glm4MoeForCausalLM", {"n_shared_experts": 1 << 20}, "the shared experts' size is"),
        ("Glm4MoeForCausalLM", {"routed_scaling_factor": -1.0}, "the scale of the experts' weights is -1.0"),
        ("Glm4MoeForCausalLM", {"num_nextn_predict_layers": -3}, "number of predicting layers is -2"),
        ("DeepseekV2ForCausalLM", {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
        ("DeepseekV2ForCausalLM", {"moe_layer_freq": 2}, "moe_layer_freq is not 1"),
        ("DeepseekV3ForCausalLM", {"attention_bias": True}, "attention_bias is true"),
        ("DeepseekV3ForCausalLM", {"rope_interleave": False}, "rope_interleave is false"),
        ("DeepseekV3ForCausalLM", {"kv_lora_rank": 0}, "kv_lora_rank is 0, expected 1 to"),
        ("DeepseekV3ForCausalLM", {"qk_rope_head_dim": 7}, "head_dim is 27, rotary embedding needs an even one"),
        ("Qwen2MoeForCausalLM", {"use_sliding_window": True}, "use_sliding_window is true"),
        ("OlmoeForCausalLM", {"clip_qkv": 8.0}, "clip_qkv is set"),
        ("ApertusForCausalLM", {"hidden_act": "silu"}, "hidden_act 'silu', expected 'xielu'"),
        ("NemotronForCausalLM", {"hidden_act": "silu"}, "hidden_act 'silu', expected 'relu2'"),
        ("StableLmForCausalLM", {"qk_layernorm": True}, "qk_layernorm is true"),
        ("Llama4ForCausalLM", {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step is 0"),
        ("Llama4ForCausalLM", {"layer_types": ["chunked_attention"]}, "layer_types has 1 items for 5 layers"),
        ("Llama4ForCausalLM", {"layer_types": ["sliding_attention"] * 5}, "layer_types has 'sliding_attention'"),
        ("Llama4ForCausalLM", {"attention_chunk_size": 0}, "attention_chunk_size is 0, expected 1 to"),
        ("Llama4ForCausalLM", {"floor_scale": 0}, "queries grow by 0.1 every 0 tokens"),
        ("Llama4ForCausalLM", {"attn_temperature_tuning": "yes"}, "attn_temperature_tuning is str, expected true or"),
        ("MiniMaxM2ForCausalLM", {"head_dim": 0}, "head_dim is 0, expected 1 to"),
        ("Ernie4_5_MoeForCausalLM", {"use_bias": True}, "use_bias is true"),
        ("Ernie4_5_MoeForCausalLM", {"moe_layer_interval": 0}, "moe_layer_interval is 0"),
        ("HunYuanMoEV1ForCausalLM", {"use_cla": True}, "use_cla is true"),
        ("HunYuanMoEV1ForCausalLM", {"moe_topk": [1, 2]}, "moe_topk has 2 different numbers"),
        ("ExaoneMoeForCausalLM", {"mlp_layer_types": ["dense"]}, "mlp_layer_types: expected dense or sparse for each"),
        ("Glm4ForCausalLM", {"rope_parameters": {"partial_rotary_factor": 2.0}}, "partial_rotary_factor is 2.0"),
        ("Glm4ForCausalLM", {"rope_parameters": {"partial_rotary_factor": 0.2}}, "rope turns 3 of a head's 16"),
        (
            "HunYuanDenseV1ForCausalLM",
            {"rope_parameters": {"rope_type": "dynamic", "alpha": 1e9}},
            "rope scaling has alpha 1e+09 for heads of 16",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    rewritten(tmp_path, name, values)
    assert reason in refusal(tmp_path)


def test_layers_that_guess_further_tokens_are_left_in_the_file(tmp_path: Path) -> None:
    oracle = oracle_of("Glm4MoeForCausalLM", num_mtp_layers=1)
    further = {"nextn.eh_proj.weight": (32, 64), "attn_q.weight": (64, 32)}
    tensors = {f"blk.3.{name}": np.ones(shape, dtype=np.float32) for name, shape in further.items()}
    path = write_gguf(
        oracle,
        tmp_path / "model.gguf",
        extra=tensors,
        numbers={"glm4moe.nextn_predict_layers": 1, "glm4moe.block_count": 4},
    )
    loaded = load_model(path, EngineConfig())
    assert loaded.info.config.num_layers == 3
    assert logits_of(loaded, PROMPTS[0]).allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)
