"""The APIs that keep what they made: responses, conversations and stored chats. Databases are `gateway.storage`'s."""
