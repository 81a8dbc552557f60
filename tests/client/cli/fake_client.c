/* fake_client.c - stands in for the client library: does nothing, but can be preloaded. */
extern const int fake_client;
const int fake_client = 1;
