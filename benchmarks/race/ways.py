"""The racers: the same FedAvg, each by another library, each in a process of its own.

``python ways.py WAY FOLDER`` builds a racer from the job in FOLDER (see ``race.py``), says that it
is ready, and answers commands, one a line:

* ``compare``: two rounds in which samples come in their listed order; the global model is saved;
* ``turn``: whole rounds, shuffled as the library does it, for half a second or more: the seconds of
  a round, of the local training in it where it can be told apart, and of processor time.

A racer has ``round()``, which returns the seconds (whole, local or None, of all processors),
``in_order(yes)`` and ``vector()``.
The libraries' own classes do the work; what is here only hands them data, network and clock. Only
NumPy is imported at the top: each environment has its own library and little else.
"""

import importlib.metadata
import importlib.util
import itertools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

TURN = 0.5  # seconds that a turn lasts at least


class Job:
    """What is to be trained: read from a folder, the same for all."""

    def __init__(self, folder):
        self.folder = Path(folder)
        written = json.loads((self.folder / "job.json").read_text())
        for name, (kind, shape) in written.pop("arrays").items():
            array = np.fromfile(self.folder / f"{name}.bin", kind).reshape(shape)
            setattr(self, name, array)
        self.__dict__.update(written)

    def samples(self, client):
        """Inputs and labels of a client."""
        return self.x[self.index[client]], self.y[self.index[client]]


class Clock:
    """Adds up the seconds of the calls that it wraps."""

    def __init__(self):
        self.seconds = 0.0

    def wrap(self, call):
        def timed(*given, **named):
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                self.seconds += time.perf_counter() - began

        return timed

    def read(self):
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Racer:
    """What most have in common: ``once()`` makes one round; ``clock`` sees the local training."""

    packages = ("torch",)
    clock = None

    def __init__(self, job):
        self.job = job

    def round(self):
        began, spent = time.perf_counter(), self.processor()
        self.once()
        whole, spent = time.perf_counter() - began, self.processor() - spent
        return whole, self.clock and self.clock.read(), spent

    def processor(self):
        """Seconds of processor time so far, of all cores."""
        return time.process_time()

    def serve(self, answer):
        """Answer commands until there are none."""
        serve(self, answer)

    def versions(self):
        return {name: importlib.metadata.version(name) for name in self.packages}


# ---- torch ---------------------------------------------------------------------------------------


def network(job):
    """The network as textbooks and other libraries have it, with the initial parameters."""
    import torch
    from torch import nn

    flat = [nn.Flatten()]
    if job.model == "logistic_regression":
        net = nn.Sequential(*flat, nn.Linear(784, 10))
    elif job.model == "mlp":
        net = nn.Sequential(*flat, nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    else:
        parts = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)]
        parts += [nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
        net = nn.Sequential(*parts, *flat, nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    nn.utils.vector_to_parameters(torch.from_numpy(job.start.copy()), net.parameters())
    return net


def flat(parameters):
    from torch.nn.utils import parameters_to_vector

    return parameters_to_vector(parameters).detach().numpy().copy()


class SamplerInOrder:
    """torch's loaders that shuffle, told to keep the order: for the comparison alone."""

    def in_order(self, yes):
        from torch.utils.data import RandomSampler

        if not hasattr(RandomSampler, "_own"):
            RandomSampler._own = RandomSampler.__iter__
        listed = lambda self: iter(range(len(self.data_source)))  # noqa: E731
        RandomSampler.__iter__ = listed if yes else RandomSampler._own


class Plain(SamplerInOrder, Racer):
    """No library: a DataLoader, a module, an optimiser, a loop, one client after the other."""

    def __init__(self, job):
        import torch
        from torch.utils.data import TensorDataset

        super().__init__(job)
        self.net, self.clock = network(job), Clock()
        self.sets = [
            TensorDataset(*map(torch.from_numpy, job.samples(i))) for i in range(job.clients)
        ]
        self.start = torch.from_numpy(job.start.copy())
        self.fit = self.clock.wrap(self._fit)

    def _fit(self, samples):
        import torch
        from torch.utils.data import DataLoader

        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.job.lr)
        for x, y in DataLoader(samples, self.job.batch, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x), y).backward()
            optimizer.step()

    def once(self):
        import torch
        from torch.nn.utils import parameters_to_vector, vector_to_parameters

        total = torch.zeros_like(self.start)
        for samples in self.sets:
            vector_to_parameters(self.start.clone(), self.net.parameters())
            self.fit(samples)
            total += parameters_to_vector(self.net.parameters()).detach()
        self.start = total / len(self.sets)

    def vector(self):
        return self.start.numpy()


# ---- this library --------------------------------------------------------------------------------


class Library(Racer):
    """pfl_lib, with the engine it chooses."""

    packages = ("pfl_lib", "torch")
    options: dict = {}

    def __init__(self, job):
        import torch

        import pfl_lib

        super().__init__(job)
        clock = self.clock = Clock()

        class Watched(pfl_lib.Federation):
            perform = clock.wrap(pfl_lib.Federation.perform)
            perform = lambda self, work, who, call=perform: call(self, work, who)  # noqa: E731

        spent = self.spent = []

        class Spent(pfl_lib.callbacks.Callback):
            def on_start(self, now):
                spent[:] = [time.process_time()]

            def on_round_end(self, now):
                spent.append(time.process_time())

        self.few = {"test_clients": [0], "progress": False, "callbacks": [Spent()]}
        self.run, self.method = pfl_lib.run, pfl_lib.algorithm("fedavg")
        data, test = pfl_lib.data.load("mnist5k"), torch.arange(4000, 4010)
        train = tuple(map(torch.from_numpy, job.index))
        parts = pfl_lib.partition.Partition("race", train, (test,) * job.clients)
        self.fed = Watched(
            data, parts, job.model, lr=job.lr, batch_size=job.batch, device="cpu", **self.options
        )
        self.rounds = 1

    def in_order(self, yes):
        self.fed = self.fed.replace(shuffle=not yes)
        self.rounds = 2 if yes else 1

    def round(self):
        self.history = self.run(self.method, self.fed, self.rounds, **self.few)
        spent = self.spent[1] - self.spent[0]  # of the first round: later ones follow a test
        return self.history.seconds[-1] / self.rounds, self.clock.read() / self.rounds, spent

    def vector(self):
        return self.method.personal(self.history.state, self.fed)[0].numpy()

    def versions(self):
        import torch

        import pfl_lib

        return {"pfl_lib": pfl_lib.__version__, "torch": torch.__version__}

    def plan(self):
        return self.fed.plan()


class Library16(Library):
    """pfl_lib, products and convolutions in bfloat16."""

    options = {"precision": "bf16"}


# ---- checkouts that the user names ---------------------------------------------------------------


class PFLlib(SamplerInOrder, Racer):
    """PFLlib's server and clients; the steps of its FedAvg.train() in order, no evaluation."""

    def __init__(self, job):
        from types import SimpleNamespace

        super().__init__(job)
        system = Path(os.environ["PFLLIB"]).resolve() / "system"
        sys.path.insert(0, str(system))
        here = job.folder / "pfllib" / "system"  # it reads ../dataset, and asks for no other place
        here.mkdir(parents=True, exist_ok=True)
        for part in ("train", "test"):
            files = here.parent / "dataset" / "race" / part
            files.mkdir(parents=True, exist_ok=True)
            for client in range(job.clients):
                x, y = job.samples(client)
                np.savez(files / f"{client}.npz", data={"x": x, "y": y})
        os.chdir(here)
        from flcore.servers.serveravg import FedAvg

        settings = SimpleNamespace(
            model=network(job), device="cpu", dataset="race", num_classes=10, global_rounds=1,
            local_epochs=1, batch_size=job.batch, local_learning_rate=job.lr,
            num_clients=job.clients, join_ratio=1.0, random_join_ratio=False, few_shot=0,
            algorithm="FedAvg", time_select=False, goal="race", time_threthold=1e9,
            save_folder_name="items", top_cnt=100, auto_break=False, eval_gap=1,
            client_drop_rate=0.0, train_slow_rate=0.0, send_slow_rate=0.0, dlg_eval=False,
            dlg_gap=1, batch_num_per_client=1, num_new_clients=0, fine_tuning_epoch_new=0,
            learning_rate_decay=False, learning_rate_decay_gamma=0.99,
        )  # fmt: skip
        self.server, self.clock = FedAvg(settings, 0), Clock()
        for client in self.server.clients:
            client.train = self.clock.wrap(client.train)

    def once(self):
        server = self.server
        server.selected_clients = server.select_clients()
        server.send_models()
        for client in server.selected_clients:
            client.train()
        server.receive_models()
        server.aggregate_parameters()

    def vector(self):
        return flat(self.server.global_model.parameters())


class FLbench(SamplerInOrder, Racer):
    """FL-bench's FedAvg server and client, in its default, serial mode, without evaluation."""

    def __init__(self, job):
        import pickle
        from types import SimpleNamespace

        import torch

        super().__init__(job)
        torchvision_beside_cpu_torch()
        checkout = Path(os.environ["FLBENCH"]).resolve()
        sys.path.insert(0, str(checkout))
        import src.server.fedavg as home
        from data.utils.datasets import BaseDataset
        from omegaconf import OmegaConf
        from src.client.fedavg import FedAvgClient
        from src.utils.models import DecoupledModel

        here, clients = job.folder / "flbench", list(range(job.clients))
        (here / "data" / "mnist").mkdir(parents=True, exist_ok=True)
        (here / "data" / "mnist" / "args.json").write_text('{"split": "sample"}')
        apart = {"train": clients, "val": [], "test": [], "total": job.clients}
        rows = [{"train": row.tolist(), "val": [], "test": []} for row in job.index]
        (here / "data" / "mnist" / "partition.pkl").write_bytes(
            pickle.dumps({"separation": apart, "data_indices": rows})
        )
        home.FLBENCH_ROOT = here  # nothing is written into the checkout
        place = SimpleNamespace(runtime=SimpleNamespace(output_dir=str(here)))
        home.HydraConfig = SimpleNamespace(get=lambda: place)
        clock = self.clock = Clock()

        class Client(FedAvgClient):
            def fit(self):
                clock.wrap(super().fit)()

        class Server(home.FedAvgServer):
            client_cls = Client

            def init_model(self, *given, **named):
                net, model = network(job), DecoupledModel()
                model.base, model.classifier = net[:-1], net[-1]
                super().init_model(model=model)

            def get_dataset(self):
                data = BaseDataset(torch.zeros(1), torch.from_numpy(job.y), list(range(10)))
                data.data = torch.from_numpy(job.x)  # normalised already
                return data

        settings = OmegaConf.load(checkout / "config" / "defaults.yaml")
        settings.common.update(
            {"join_ratio": 1.0, "local_epoch": 1, "batch_size": job.batch, "use_cuda": False}
        )
        settings.common.update({"client_side_evaluation": False, "save_log": False})
        settings.common.test.client.update({"interval": -1, "test": False})
        settings.optimizer.lr = job.lr
        self.server = Server(settings)
        self.server.selected_clients = clients

    def once(self):
        self.server.train_one_round()

    def vector(self):
        return flat(self.server.public_model_params.values())


def torchvision_beside_cpu_torch():
    """torchvision's wheels want CUDA; beside a CPU-only torch two schemas are declared first."""
    file = Path(__file__).resolve().parents[2] / "pfl_lib" / "_torchvision.py"
    found = importlib.util.spec_from_file_location("beside_cpu_torch", file)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)  # that file alone: pfl_lib itself is no part of this racer
    module.import_torchvision()


# ---- packages ------------------------------------------------------------------------------------


class Fluke(Racer):
    """fluke's clients, server and channel; the steps of CentralizedFL.run in their order."""

    packages = ("fluke-fl", "torch")

    def __init__(self, job):
        import torch

        super().__init__(job)
        torchvision_beside_cpu_torch()
        from fluke import FlukeENV
        from fluke.client import Client
        from fluke.config import OptimizerConfigurator
        from fluke.data import FastDataLoader
        from fluke.server import Server

        FlukeENV().set_device("cpu")
        FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, server=False, locals=False)
        self.clock, self.clients, self.count = Clock(), [], 0
        for i in range(job.clients):
            x, y = map(torch.from_numpy, job.samples(i))
            loader = FastDataLoader(x, y, num_labels=10, batch_size=job.batch, shuffle=True)
            options = OptimizerConfigurator({"name": "SGD", "lr": job.lr})
            loss = torch.nn.CrossEntropyLoss()
            self.clients.append(Client(i, loader, None, options, loss, local_epochs=1))
        self.server = Server(network(job), None, self.clients, weighted=True)
        for client in self.clients:
            client.set_channel(self.server.channel)
            client.fit = self.clock.wrap(client.fit)

    def in_order(self, yes):
        for client in self.clients:
            client.train_set.shuffle = not yes

    def once(self):
        self.count += 1
        chosen = self.server.get_eligible_clients(1)
        self.server.broadcast_model(chosen)
        for client in chosen:
            client.local_update(self.count)
        models = self.server.receive_client_models(chosen, state_dict=False)
        self.server.aggregate(chosen, models)

    def vector(self):
        return flat(self.server.model.parameters())


class FedJAX(Racer):
    """FedJAX's federated_averaging on its clients' data sets; compiled in the first round."""

    packages = ("fedjax", "jax")

    def __init__(self, job):
        import fedjax
        import jax

        super().__init__(job)
        self.fedjax, self.jax, self.seed = fedjax, jax, 0
        images = job.model not in ("logistic_regression", "mlp")
        self.parameters = self._split(job.start) if images else self._dense(job.start)
        self.grad = jax.grad(self._loss_images if images else self._loss_dense)
        shape = (28, 28, 1) if images else (784,)
        self.sets = [
            fedjax.ClientDataset({"x": x.reshape(-1, *shape), "y": y})
            for x, y in map(job.samples, range(job.clients))
        ]
        self.in_order(False)

    def in_order(self, yes):
        fedjax, job = self.fedjax, self.job
        options = fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch, skip_shuffle=yes)
        grad = lambda parameters, batch, rng: self.grad(parameters, batch)  # noqa: E731
        self.algorithm = fedjax.algorithms.fed_avg.federated_averaging(
            grad, fedjax.optimizers.sgd(job.lr), fedjax.optimizers.sgd(1.0), options
        )
        now = self.state.params if hasattr(self, "state") else self.parameters
        self.state = self.algorithm.init(now)

    def once(self):
        self.seed += 1
        keys = self.jax.random.split(self.jax.random.PRNGKey(self.seed), len(self.sets))
        clients = [(b"%d" % i, data, key) for i, (data, key) in enumerate(zip(self.sets, keys))]
        self.state, _ = self.algorithm.apply(self.state, clients)
        self.jax.block_until_ready(self.state.params)

    # the same networks as functions; JAX likes images with the channels last

    def _dense(self, vector):
        widths = [784, 100, 10] if self.job.model == "mlp" else [784, 10]
        layers, at = [], 0
        for a, b in itertools.pairwise(widths):
            layers.append((vector[at : at + a * b].reshape(b, a).T, vector[at + a * b :][:b]))
            at += a * b + b
        return layers

    def _split(self, vector):
        shapes = [
            (32, 1, 5, 5),
            (32,),
            (64, 32, 5, 5),
            (64,),
            (512, 1024),
            (512,),
            (10, 512),
            (10,),
        ]
        parts, at = [], 0
        for shape in shapes:
            part = vector[at : at + int(np.prod(shape))].reshape(shape)
            parts.append(part.transpose(2, 3, 1, 0) if part.ndim == 4 else part.T)
            at += part.size
        return [(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]

    def _cross_entropy(self, logits, y):
        chosen = self.jax.numpy.take_along_axis(self.jax.nn.log_softmax(logits), y[:, None], 1)
        return -chosen.mean()

    def _loss_dense(self, layers, batch):
        x = batch["x"]
        for w, b in layers[:-1]:
            x = self.jax.nn.relu(x @ w + b)
        return self._cross_entropy(x @ layers[-1][0] + layers[-1][1], batch["y"])

    def _loss_images(self, layers, batch):
        lax, x = self.jax.lax, batch["x"]
        for w, b in layers[:2]:
            x = lax.conv_general_dilated(
                x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = self.jax.nn.relu(x + b)
            x = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        x = self.jax.nn.relu(x @ layers[2][0] + layers[2][1])
        return self._cross_entropy(x @ layers[3][0] + layers[3][1], batch["y"])

    def vector(self):
        parts = [np.asarray(p) for layer in self.state.params for p in layer]
        turned = [p.transpose(3, 2, 0, 1) if p.ndim == 4 else p.T for p in parts]
        return np.concatenate([p.reshape(-1) for p in turned])


class BlazeFL(Racer):
    """BlazeFL's FedAvg server and its trainer that takes clients one after the other."""

    packages = ("blazefl", "torch")

    def __init__(self, job):
        super().__init__(job)
        from blazefl.contrib import fedavg

        self.shuffle = True
        given = {"model_name": "net", "dataset": BlazeData(self), "device": "cpu"}
        given |= {"model_selector": BlazeModel(job.folder), "num_clients": job.clients}
        given |= {"batch_size": job.batch, "seed": 0}
        self.server = fedavg.FedAvgBaseServerHandler(**given, global_round=1, sample_ratio=1.0)
        self.trainer = self.make(fedavg, given | {"epochs": 1, "lr": job.lr})

    def make(self, fedavg, given):
        trainer, self.clock = fedavg.FedAvgBaseClientTrainer(**given), Clock()
        trainer.train = self.clock.wrap(trainer.train)
        return trainer

    def in_order(self, yes):
        self.shuffle = not yes

    def once(self):
        chosen = self.server.sample_clients()
        self.trainer.local_process(self.server.downlink_package(), chosen)
        for package in self.trainer.uplink_package():
            self.server.load(package)

    def vector(self):
        return flat(self.server.model.parameters())


class BlazeThreads(BlazeFL):
    """BlazeFL's pool of threads, one core each."""

    def make(self, fedavg, given):
        import torch

        cores = torch.get_num_threads()
        torch.set_num_threads(1)
        self.clock = None
        return fedavg.FedAvgThreadPoolClientTrainer(**given, num_parallels=cores)


class BlazeModel:
    def __init__(self, folder):
        self.job = Job(folder)

    def select_model(self, name):
        return network(self.job)


class BlazeData:
    def __init__(self, racer):
        import torch
        from torch.utils.data import TensorDataset

        job, self.racer = racer.job, racer
        self.sets = [
            TensorDataset(*map(torch.from_numpy, job.samples(i))) for i in range(job.clients)
        ]

    def get_dataset(self, type_, cid):
        return self.sets[cid]

    def set_dataset(self, type_, cid, dataset):
        self.sets[cid] = dataset

    def get_dataloader(self, type_, cid, batch_size=None, generator=None):
        from torch.utils.data import DataLoader

        options = {"shuffle": self.racer.shuffle, "generator": generator}
        return DataLoader(self.sets[cid], batch_size, **options)


class PFLResearch(Racer):
    """pfl-research's FederatedAveraging on its simulated backend; it never shuffles a client."""

    packages = ("pfl", "torch")

    def __init__(self, job):
        import torch
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.dataset import Dataset
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.data.sampling import get_user_sampler
        from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
        from pfl.internal.ops.selector import set_framework_module
        from pfl.model.pytorch import PyTorchModel

        super().__init__(job)
        from pfl.internal.ops import pytorch_ops

        set_framework_module(pytorch_ops)
        net, clock = network(job), Clock()
        cross_entropy = torch.nn.functional.cross_entropy
        net.loss = lambda x, y, eval=False: cross_entropy(net(x), y)
        net.metrics = lambda x, y: {}

        class Averaging(FederatedAveraging):
            def train_one_user(self, *given):
                return clock.wrap(super().train_one_user)(*given)

        users = [
            Dataset([*map(torch.from_numpy, job.samples(i))], user_id=str(i))
            for i in range(job.clients)
        ]
        everyone = FederatedDataset(
            lambda i: users[i], get_user_sampler("minimize_reuse", list(range(job.clients)))
        )
        self.clock, self.algorithm, self.count = clock, Averaging(), 1
        self.backend = SimulatedBackend(everyone, everyone)
        self.model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
        self.settings = (
            NNAlgorithmParams(
                central_num_iterations=10**9, evaluation_frequency=10**9,
                train_cohort_size=job.clients, val_cohort_size=0,
            ),
            NNTrainHyperParams(
                local_num_epochs=1, local_learning_rate=job.lr, local_batch_size=job.batch
            ),
            NNEvalHyperParams(local_batch_size=job.batch),
        )  # fmt: skip

    def in_order(self, yes):
        pass

    def once(self):
        algorithm, model = self.algorithm, self.model
        contexts, model, _ = algorithm.get_next_central_contexts(model, self.count, *self.settings)
        statistics, metrics = self.backend.gather_results(
            model, algorithm, central_context=contexts[0]
        )
        algorithm.process_aggregated_statistics(contexts[0], metrics, model, statistics)
        self.count += 1

    def vector(self):
        return flat(self.model.pytorch_model.parameters())


class Flower(Racer):
    """Flower's simulation engine (Ray, a core per client); the client is the plain loop above.

    Everything stays on this machine's loopback: no telemetry, no look at cloud addresses.
    """

    packages = ("flwr", "ray", "torch")

    def __init__(self, job):
        super().__init__(job)
        home = job.folder / "flower"
        home.mkdir(exist_ok=True)
        (home / "ray_bootstrap_config.yaml").write_text("provider: {type: local}\n")
        os.environ |= {
            "HOME": str(home), "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_TMPDIR": os.environ["RACE_SHORT"],
            "PYTHONPATH": str(Path(__file__).parent),
        }  # fmt: skip
        self.model, self.shuffle = job.start, True

    def in_order(self, yes):
        self.shuffle = not yes

    def serve(self, answer):
        import flower_client
        from flwr.app import Message, RecordDict
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        app = ServerApp()

        @app.main()
        def main(grid, context):
            self.grid = grid
            while len(list(grid.get_node_ids())) < self.job.clients:
                time.sleep(0.05)
            self.nodes = list(grid.get_node_ids())
            hello = [Message(RecordDict(), node, "query") for node in self.nodes]
            self.grid.send_and_receive(hello)  # Ray's workers are up when all have answered
            serve(self, answer)

        init = {"num_cpus": os.cpu_count(), "_node_ip_address": "127.0.0.1"}
        init |= {"include_dashboard": False, "log_to_driver": False}
        resources = {"num_cpus": 1, "num_gpus": 0.0}
        backend = {"client_resources": resources, "init_args": init}
        client = flower_client.app(str(self.job.folder))
        run_simulation(app, client, num_supernodes=self.job.clients, backend_config=backend)

    def once(self):
        from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

        content = {
            "model": ArrayRecord({"w": Array(self.model)}),
            "how": ConfigRecord({"shuffle": self.shuffle}),
        }
        messages = [Message(RecordDict(content), node, "train") for node in self.nodes]
        total, weight = np.zeros_like(self.model), 0
        for reply in self.grid.send_and_receive(messages):
            if reply.has_error():
                raise RuntimeError(f"a Flower client failed: {reply.error.reason}")
            count = reply.content["how"]["samples"]
            total += count * reply.content["model"]["w"].numpy()
            weight += count
        self.model = (total / weight).astype(np.float32)

    def vector(self):
        return self.model

    def processor(self):
        """Ray's workers too: they are descendants of this process (Linux)."""
        from race_processes import descendants, processor_time

        return sum(map(processor_time, [os.getpid(), *descendants(os.getpid())]))


WAYS = {
    "plain": Plain, "pfl_lib": Library, "pfl_lib-bf16": Library16, "pfllib": PFLlib,
    "flbench": FLbench, "fluke": Fluke, "fedjax": FedJAX, "blazefl": BlazeFL,
    "blazefl-threads": BlazeThreads, "pfl-research": PFLResearch, "flower": Flower,
}  # fmt: skip


# ---- the process ---------------------------------------------------------------------------------


def serve(racer, answer):
    """Answer the commands of standard input."""
    plan = racer.plan() if hasattr(racer, "plan") else ""
    answer({"ready": True, "versions": racer.versions(), "plan": plan})
    for line in sys.stdin:
        if line.strip() == "compare":
            racer.in_order(True)
            rounds = getattr(racer, "rounds", 1)
            for _ in range(2 // rounds):
                racer.round()
            file = racer.job.folder / f"{os.getpid()}.bin"
            racer.vector().astype(np.float32).tofile(file)
            racer.in_order(False)
            answer({"file": str(file)})
        else:
            answer(turn(racer))


def turn(racer):
    """Mean seconds of the rounds of a turn."""
    began, found = time.perf_counter(), []
    while not found or time.perf_counter() - began < TURN:
        found.append(racer.round())
    mean = lambda which: sum(f[which] for f in found) / len(found)  # noqa: E731
    local = None if found[0][1] is None else mean(1)
    return {"whole": mean(0), "local": local, "processor": mean(2)}


def main():
    way, folder = sys.argv[1:]
    # what the libraries print goes to standard error; answers have standard output to themselves
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(record):
        print(json.dumps(record), file=out, flush=True)

    WAYS[way](Job(folder)).serve(answer)


if __name__ == "__main__":
    main()
