"""Chat templates of public model families, written anew with the same structure: what they read, loop over and call."""

# ruff: noqa: E501 - lines of templates end where their text may be broken

from collections.abc import Mapping

__all__ = ["FAMILIES"]

_QWEN_25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'Be of help.' }}{%- endif %}
    {{- '\\n\\n# Functions\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nWrite {"name": ..., "arguments": ...} in <tool_call></tool_call>.<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>system\\nBe of help.<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') or (message.role == 'system' and not loop.first)
        or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != 'tool') %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

_QWEN_3 = """{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == 'user' and message.content is string
        and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
            {{- content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>assistant\\n' + content }}{%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
                {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

_QWEN_CODER = """{% macro extras(data, known) %}{%- if data is mapping %}
    {%- for key in data | list %}{%- if key not in known %}
        {%- if data[key] is mapping or (data[key] is sequence and data[key] is not string) %}
            {{- '\\n<' ~ key ~ '>' ~ (data[key] | tojson | safe) ~ '</' ~ key ~ '>' }}
        {%- else %}{{- '\\n<' ~ key ~ '>' ~ (data[key] | string) ~ '</' ~ key ~ '>' }}{%- endif %}
    {%- endif %}{%- endfor %}
{%- endif %}{% endmacro %}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- '<function>\\n<name>' ~ tool.name ~ '</name>' }}
    {%- if tool.parameters is defined and tool.parameters.properties is mapping %}
        {%- for name, fields in tool.parameters.properties | items %}
            {{- '\\n<parameter><name>' ~ name ~ '</name>' }}
            {{- extras(fields, ['name', 'description']) }}{{- '</parameter>' }}
        {%- endfor %}
    {%- endif %}{{- '\\n</function>\\n' }}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<|im_start|>user\\n' }}{%- endif %}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>\\n' }}
        {%- if not loop.last and loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}
        {%- elif loop.last %}{{- '<|im_end|>\\n' }}{%- endif %}{%- continue %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is defined and message.content is string and message.content | trim | length > 0 %}
        {{- message.content | trim }}
    {%- endif %}
    {%- for tool_call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n<function=' + tool_call.function.name + '>\\n' }}
        {%- for name, value in tool_call.function.arguments | items %}
            {{- '<parameter=' + name + '>\\n' }}
            {%- set value = value if value is string else (value | tojson | safe) %}
            {{- value }}{{- '\\n</parameter>\\n' }}
        {%- endfor %}{{- '</function>\\n</tool_call>' }}
    {%- endfor %}{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

_LLAMA_31 = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Today Date: ' + date_string + '\\n\\n' }}{{- system_message }}{{- '<|eot_id|>' }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
    {%- else %}{{- raise_exception('Cannot put tools in the first user message when there is none!') }}{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\nAnswer {"name": ..., "parameters": ...}.\\n\\n' -}}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
    {{- first_user_message + '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception('This model takes single tool-calls only') }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- elif message.role == 'tool' or message.role == 'ipython' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}{{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

_MISTRAL = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace() %}{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == 'tool' or message.role == 'tool_results' or (message.tool_calls is defined
        and message.tool_calls is not none)) %}
        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}
            {{- raise_exception('After the optional system message, roles must alternate user/assistant') }}
        {%- endif %}{%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != 'return' %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ', ' }}{%- endif %}
                {%- endfor %}{{- '}}' }}{%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' }}{%- endif %}
            {%- endfor %}{{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}{{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
            {%- endif %}{{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] | trim + eos_token }}
    {%- elif message['role'] == 'tool_results' or message['role'] == 'tool' %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content | string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception('Only user and assistant roles are supported!') }}{%- endif %}
{%- endfor %}"""

_GEMMA_3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}{%- set first_user_prefix = '' -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception('Invalid content type') }}{%- endif -%}{{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"""

_FUNCTION_GEMMA = """{%- macro argument(value) -%}
    {%- if value is string -%}{{- '<escape>' + value + '<escape>' -}}
    {%- elif value is boolean -%}{{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}{%- set ns = namespace(found_first=false) -%}
        {%- for key, item in value | dictsort -%}
            {%- if ns.found_first -%}{{- ',' -}}{%- endif -%}{%- set ns.found_first = true -%}
            {{- key -}}:{{- argument(item) -}}
        {%- endfor -%}{{- '}' -}}
    {%- elif value is sequence -%}
        {{- '[' -}}{%- for item in value -%}{{- argument(item) -}}{%- if not loop.last -%}{{- ',' -}}{%- endif -%}{%- endfor -%}{{- ']' -}}
    {%- else -%}{{- value -}}{%- endif -%}
{%- endmacro -%}
{{ bos_token }}{%- set ns = namespace(prev_message_type=None) -%}
{%- if tools or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<start_of_turn>developer\\n' -}}
    {%- if messages[0]['role'] in ['system', 'developer'] -%}{{- messages[0]['content'] | trim -}}{%- endif -%}
    {%- for tool in tools or [] -%}
        {{- '<start_function_declaration>declaration:' + tool['function']['name'] + argument(tool['function']['parameters']) -}}
        {{- '<end_function_declaration>' -}}
    {%- endfor -%}{{- '<end_of_turn>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message['role'] in ['system', 'developer'] and loop.first -%}{%- continue -%}{%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {%- if message['role'] != 'tool' -%}{{- '<start_of_turn>' + role + '\\n' -}}{%- endif -%}
    {%- if message['content'] is string and message['role'] != 'tool' -%}{{- message['content'] | trim -}}{%- endif -%}
    {%- for call in message['tool_calls'] or [] -%}
        {{- '<start_function_call>call:' + call['function']['name'] + argument(call['function']['arguments']) + '<end_function_call>' -}}
    {%- endfor -%}
    {%- if message['role'] == 'tool' -%}
        {{- '<start_function_response>response:' + (message['name'] or 'unknown') + '{value:' + argument(message['content']) + '}' -}}
        {{- '<end_function_response>' -}}
    {%- else -%}{{- '<end_of_turn>\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}"""

_PHI_4 = """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}\
{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}\
{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

_DEEPSEEK_31 = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{%- if not thinking is defined %}{% set thinking = false %}{% endif %}
{%- set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true, is_last_user=false) %}
{%- for message in messages %}{%- if message['role'] == 'system' %}
    {%- if ns.is_first_sp %}{%- set ns.system_prompt = ns.system_prompt + message['content'] %}{%- set ns.is_first_sp = false %}
    {%- else %}{%- set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}
{%- endif %}{%- endfor %}
{%- if tools is defined and tools is not none %}
    {%- set tool_ns = namespace(text='## Tools\\n') %}
    {%- for tool in tools %}
        {%- set tool_ns.text = tool_ns.text + '\\n### ' + tool.function.name + '\\n' + (tool.function.parameters | tojson) + '\\n' %}
    {%- endfor %}{%- set ns.system_prompt = ns.system_prompt + '\\n\\n' + tool_ns.text %}
{%- endif %}
{{- bos_token }}{{- ns.system_prompt }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {%- set ns.is_tool = false %}{%- set ns.is_last_user = true %}{{- '<｜User｜>' + message['content'] }}
    {%- endif %}
    {%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}
        {%- if ns.is_last_user %}{{- '<｜Assistant｜></think>' }}{%- endif %}
        {%- set ns.is_last_user = false %}{%- set ns.is_first = false %}{%- set ns.is_tool = false %}
        {%- for tool in message['tool_calls'] %}
            {%- if not ns.is_first %}
                {{- (message['content'] or '') + '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' }}{%- set ns.is_first = true %}
            {%- else %}{{- '<｜tool▁call▁begin｜>' }}{%- endif %}
            {{- tool['function']['name'] + '<｜tool▁sep｜>' + (tool['function']['arguments'] | tojson) + '<｜tool▁call▁end｜>' }}
        {%- endfor %}{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if ns.is_last_user %}{{- '<｜Assistant｜>' + ('<think>' if message['prefix'] is defined and thinking else '</think>') }}{%- endif %}
        {%- set ns.is_last_user = false %}{%- set content = message['content'] %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>', 1)[1] %}{%- endif %}
        {{- content + '<｜end▁of▁sentence｜>' }}
    {%- endif %}
    {%- if message['role'] == 'tool' %}
        {%- set ns.is_last_user = false %}{%- set ns.is_tool = true %}
        {{- '<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and ns.is_last_user and not ns.is_tool %}
    {{- '<｜Assistant｜>' }}{%- if not thinking %}{{- '</think>' }}{%- else %}{{- '<think>' }}{%- endif %}
{%- endif %}"""

_GPT_OSS = """{%- macro typescript(spec, required) -%}
    {%- if spec.type == 'array' -%}
        {%- if spec['items'] -%}{{- typescript(spec['items'], required) + '[]' -}}{%- else -%}{{- 'any[]' -}}{%- endif -%}
    {%- elif spec.type is iterable and spec.type is not string -%}{{- spec.type | join(' | ') -}}
    {%- elif spec.enum -%}{{- '"' + spec.enum | join('" | "') + '"' -}}
    {%- elif spec.type in ('number', 'integer') -%}{{- 'number' -}}
    {%- elif spec.type == 'object' and spec.properties -%}
        {{- '{\\n' -}}{%- for name, inner in spec.properties.items() -%}
            {{- name -}}{%- if name not in (spec.required or []) -%}{{- '?' -}}{%- endif -%}
            {{- ': ' ~ typescript(inner, spec.required or []) -}}{%- if not loop.last -%}{{- ', ' -}}{%- endif -%}
        {%- endfor -%}{{- '}' -}}
    {%- else -%}{{- spec.type or 'any' -}}{%- endif -%}
{%- endmacro -%}
{{- '<|start|>system<|message|>Knowledge cutoff: 2024-06\\nCurrent date: ' + strftime_now('%Y-%m-%d') + '\\n\\n' }}
{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}{%- endif %}
{{- 'Reasoning: ' + reasoning_effort + '\\n\\n# Valid channels: analysis, commentary, final.<|end|>' }}
{%- if messages[0].role == 'developer' or messages[0].role == 'system' %}
    {%- set developer_message = messages[0].content %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set developer_message = '' %}{%- set loop_messages = messages %}{%- endif %}
{%- if developer_message or tools %}
    {{- '<|start|>developer<|message|>' }}
    {%- if developer_message %}{{- '# Instructions\\n\\n' + developer_message + '\\n\\n' }}{%- endif %}
    {%- if tools -%}{{- '# Tools\\n\\nnamespace functions {\\n' }}
        {%- for tool in tools %}{%- set tool = tool.function %}
            {{- '// ' + tool.description + '\\ntype ' + tool.name + ' = (_: ' + typescript(tool.parameters, []) + ') => any;\\n' }}
        {%- endfor %}{{- '}' }}
    {%- endif -%}{{- '<|end|>' }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if 'tool_calls' in message %}
            {%- if message.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}{%- endif %}
            {%- set tool_call = message.tool_calls[0].function %}
            {{- '<|start|>assistant to=functions.' + tool_call.name + '<|channel|>commentary json<|message|>' }}
            {{- tool_call.arguments | tojson }}{{- '<|call|>' }}{%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|return|>' }}
        {%- else %}
            {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}{%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception('A tool result without a call before it') }}{%- endif %}
        {{- '<|start|>functions.' + last_tool_call.name + ' to=assistant<|channel|>commentary<|message|>' + message.content | tojson + '<|end|>' }}
    {%- elif message.role == 'user' -%}{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""

_GLM_45 = """[gMASK]<sop>
{%- if tools -%}<|system|>
# Tools
<tools>
{% for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}</tools>{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}{{- item.text }}
            {%- elif item is string -%}{{- item }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith('/nothink')) else '' -}}
{%- elif m.role == 'assistant' -%}<|assistant|>
{%- set reasoning_content = '' %}{%- set content = visible_text(m.content) %}
{%- if m.reasoning_content is string %}{%- set reasoning_content = m.reasoning_content %}{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '\\n<think>' + reasoning_content.strip() + '</think>' }}
{%- else -%}
{{ '\\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}{{ '\\n' + content.strip() }}{%- endif -%}
{% if m.tool_calls %}{% for tc in m.tool_calls %}{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}{% endif %}
{%- elif m.role == 'tool' -%}
{%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}{{- '<|observation|>' }}{%- endif %}
{{- '\\n<tool_response>\\n' }}{{- visible_text(m.content) }}{{- '\\n</tool_response>' }}
{%- elif m.role == 'system' -%}<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{- '\\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}"""

_KIMI_K2 = """{%- macro render_content(msg) -%}
    {%- set c = msg.get('content') -%}
    {%- if c is string -%}{{ c }}
    {%- elif c is not none -%}
        {% for content in c -%}{% if content['type'] == 'image' %}<|media_start|>{% else %}{{ content['text'] }}{%- endif -%}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson(separators=(',', ':')) }}<|im_end|>{% endif -%}
{%- for message in messages -%}
    {%- if loop.first and messages[0]['role'] != 'system' -%}<|im_system|>system<|im_middle|>You are helpful.<|im_end|>{%- endif -%}
    {%- set role_name = message.get('name') or message['role'] -%}
    {%- if message['role'] == 'user' -%}<|im_user|>{{ role_name }}<|im_middle|>
    {%- elif message['role'] == 'assistant' -%}<|im_assistant|>{{ role_name }}<|im_middle|>
    {%- else -%}<|im_system|>{{ role_name }}<|im_middle|>{%- endif -%}
    {%- if message['role'] == 'assistant' and message.get('tool_calls') -%}
        {{ render_content(message) }}<|tool_calls_section_begin|>
        {%- for tool_call in message['tool_calls'] -%}
            {%- set formatted_id = tool_call['id'] -%}
            <|tool_call_begin|>{{ formatted_id }}<|tool_call_argument_begin|>
            {%- if tool_call['function']['arguments'] is string -%}{{ tool_call['function']['arguments'] }}
            {%- else -%}{{ tool_call['function']['arguments'] | tojson }}{%- endif -%}<|tool_call_end|>
        {%- endfor -%}<|tool_calls_section_end|>
    {%- elif message['role'] == 'tool' -%}{%- set tool_call_id = message.tool_call_id -%}## Return of {{ tool_call_id }}
{{ render_content(message) }}
    {%- elif message['content'] is not none -%}{{ render_content(message) }}{%- endif -%}<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}"""

_GRANITE_3 = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = 'Knowledge Cutoff Date: April 2024.' %}
    {%- if tools and documents %}{%- set system_message = system_message + ' Use tools and documents.' %}
    {%- elif tools %}{%- set system_message = system_message + ' Use tools.' %}
    {%- elif thinking %}{%- set system_message = system_message + ' Think first.' %}{%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- if tools %}
    {{- '<|start_of_role|>available_tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- if documents %}
    {%- for document in documents %}
        {{- '<|start_of_role|>document {"document_id": "' + document['doc_id'] | string + '"}<|end_of_role|>\\n' }}
        {{- document['text'] }}{{- '<|end_of_text|>\\n' }}
    {%- endfor %}
{%- endif %}
{%- for message in loop_messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' }}
        {%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}"""

_SMOLLM_3 = """{#- the mode goes into the system message -#}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set reasoning_mode = '/think' if enable_thinking else '/no_think' -%}
{{- '<|im_start|>system\\n## Metadata\\nReasoning Mode: ' + reasoning_mode + '\\n\\n## Instructions\\n' -}}
{%- if messages[0].role == 'system' -%}
    {%- set custom = messages[0].content.replace('/no_think', '').replace('/think', '').rstrip() -%}{{- custom -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- if message.role == 'user' -%}{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- generation -%}
        {%- if reasoning_mode == '/think' -%}{{- '<|im_start|>assistant\\n' + content.lstrip('\\n') + '<|im_end|>\\n' -}}
        {%- else -%}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n' + content.lstrip('\\n') + '<|im_end|>\\n' -}}{%- endif -%}
        {%- endgeneration -%}
    {%- elif message.role == 'tool' -%}{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' ~ ('' if reasoning_mode == '/think' else '<think>\\n\\n</think>\\n') -}}
{%- endif -%}"""

FAMILIES: Mapping[str, str] = {
    "Qwen 2.5": _QWEN_25,
    "Qwen 3": _QWEN_3,
    "Qwen 3 Coder": _QWEN_CODER,
    "Llama 3.1": _LLAMA_31,
    "Mistral": _MISTRAL,
    "Gemma 3": _GEMMA_3,
    "FunctionGemma": _FUNCTION_GEMMA,
    "Phi 4 mini": _PHI_4,
    "DeepSeek V3.1": _DEEPSEEK_31,
    "gpt-oss": _GPT_OSS,
    "GLM 4.5": _GLM_45,
    "Kimi K2": _KIMI_K2,
    "Granite 3": _GRANITE_3,
    "SmolLM 3": _SMOLLM_3,
}
