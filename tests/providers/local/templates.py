"""Chat templates for the tests, of the kinds that models ship."""

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}<|im_start|>system
Be brief.<|im_end|>
{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

CHATML_TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- 'Tools:' }}
    {%- for tool in tools %}{{- '\n' ~ (tool | tojson) }}{%- endfor %}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(calls=0) %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}{%- continue %}{%- endif %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>' + message.content + '</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + (' ' + message.name if message.name else '') + '\n' }}
        {%- if message.reasoning_content is defined and loop.last %}
            {{- '<think>' + message.reasoning_content + '</think>' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls %}
            {%- set ns.calls = ns.calls + 1 %}
            {{- '\n<tool_call>' + (call.function.name | tojson) + ' ' + (call.function.arguments | tojson) }}
            {{- '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think></think>' }}{%- endif %}
{%- endif %}"""

LLAMA3 = """{{- bos_token }}
{%- macro turn(role, text) %}
{{- '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' ~ text | trim ~ '<|eot_id|>' }}
{%- endmacro %}
{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- turn('system', 'Today Date: ' + date_string + '\n\n' + system_message) }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- turn('ipython', message.content | tojson if message.content is mapping else message.content) }}
    {%- elif message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- turn('assistant', {'name': call.function.name, 'parameters': call.function.arguments} | tojson) }}
        {%- endfor %}
    {%- else %}
        {%- generation %}{{- turn(message.role, message.content) }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

STRICT = """{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}{%- set turns = messages[1:] %}
{%- else %}{%- set turns = messages %}{%- endif %}
{{- bos_token }}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('The turns of SECRET should go user, assistant, user, assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system is defined %}{{- '[INST] ' + system + '\n\n' + message['content'] + ' [/INST]' }}
        {%- else %}{{- '[INST] ' + message['content'] + ' [/INST]' }}{%- endif %}
    {%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] + eos_token }}
    {%- else %}{{- raise_exception('SECRET: no such role') }}{%- endif %}
{%- endfor %}"""

NO_SYSTEM = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}
{% for message in messages %}
{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

FORGETFUL = """{%- for message in messages %}
    {%- if message.role == 'user' %}{{- 'U: ' + message.content + '\n' }}
    {%- elif message.role == 'assistant' %}{{- 'A: ' + message.content + '\n' }}{%- endif %}
{%- endfor %}{{- 'A:' if add_generation_prompt }}"""

PARTS = """{%- for message in messages %}{{- message.role ~ ':' }}
    {%- for part in message['content'] %}{%- if part['type'] == 'text' %}{{- part['text'] }}{%- endif %}{%- endfor %}
{{- '\n' }}{%- endfor %}"""

EITHER = """{%- macro show(content) %}{%- if content is string %}{{- content }}
    {%- else %}{%- for part in content %}{{- '[' + part.text + ']' }}{%- endfor %}{%- endif %}{%- endmacro %}
{%- for message in messages %}{{- message.role ~ ':' ~ show(message.content) ~ '\n' }}{%- endfor %}"""

CONTENT_ONLY = "{% for message in messages %}{{ message.content }}\n{% endfor %}"

DEVELOPER = """{%- for message in messages %}
    {%- if message.role in ['developer', 'system', 'user', 'assistant'] %}
        {{- message.role ~ ':' ~ message.content ~ '\n' }}
    {%- endif %}{%- endfor %}"""
