"""A Flower client that trains as `Plain` in ways.py does; read by Ray's workers."""

import functools


@functools.cache
def racer(folder):
    import torch
    import ways

    torch.set_num_threads(1)  # as many workers as cores
    return ways.Plain(ways.Job(folder))


def app(folder):
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    client = ClientApp()

    @client.query()
    def hello(message, context):
        racer(folder)
        return Message(RecordDict(), reply_to=message)

    @client.train()
    def train(message, context):
        import torch
        from torch.nn.utils import vector_to_parameters
        from ways import flat

        mine = racer(folder)
        samples = mine.sets[int(context.node_config["partition-id"])]
        mine.in_order(not message.content["how"]["shuffle"])
        given = torch.from_numpy(message.content["model"]["w"].numpy().copy())
        vector_to_parameters(given, mine.net.parameters())
        mine.fit(samples)
        content = {
            "model": ArrayRecord({"w": Array(flat(mine.net.parameters()))}),
            "how": ConfigRecord({"samples": len(samples)}),
        }
        return Message(RecordDict(content), reply_to=message)

    return client
