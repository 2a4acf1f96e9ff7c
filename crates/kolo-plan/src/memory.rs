//! Computes the memory that a worker needs.

use serde::Serialize;

/// Bytes per parameter that a kind of training keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    /// Name by which users select it.
    pub name: &'static str,
    /// Help text of one line.
    pub about: &'static str,
    /// Bytes of a parameter, in the type used for computation.
    pub parameter: f64,
    /// Bytes of its gradient.
    pub gradient: f64,
    /// Bytes of its optimizer state, including exact values if the computation uses others.
    pub optimizer: f64,
}

/// Mixed precision with Adam: values and gradients of 2 bytes, exact values and two moments of 4 bytes each
/// (K = 12 in Rajbhandari et al. 2020, "ZeRO", section 3.1).
pub const MIXED_ADAM: Footprint = Footprint {
    name: "mixed-adam",
    about: "16-bit values and gradients; exact values and two moments in f32",
    parameter: 2.0,
    gradient: 2.0,
    optimizer: 12.0,
};

/// Kinds of training whose memory per parameter is known.
pub static FOOTPRINTS: &[Footprint] = &[
    Footprint {
        name: "f32-sgd",
        about: "f32 without momentum",
        parameter: 4.0,
        gradient: 4.0,
        optimizer: 0.0,
    },
    Footprint {
        name: "f32-momentum",
        about: "f32; SGD with momentum, LARS, Lion",
        parameter: 4.0,
        gradient: 4.0,
        optimizer: 4.0,
    },
    Footprint {
        name: "f32-adam",
        about: "f32; Adam, AdamW, LAMB",
        parameter: 4.0,
        gradient: 4.0,
        optimizer: 8.0,
    },
    MIXED_ADAM,
];

/// State that workers divide among them instead of each holding all (Rajbhandari et al. 2020, figure 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Nothing: plain data parallelism.
    None,
    /// The optimizer's state (stage 1).
    Optimizer,
    /// Also gradients (stage 2).
    Gradients,
    /// Also parameters (stage 3).
    Parameters,
    /// Nothing is divided, but the workers, all of one host, have one copy of the optimizer's state, and two
    /// of the values.
    Host,
}

/// All stages, starting with no sharding.
pub static SHARDINGS: &[Sharding] =
    &[Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters, Sharding::Host];

impl Sharding {
    /// Returns the elements that a rank sends and receives in a step, per parameter, for many workers. A step
    /// has a reduce-scatter and an all-gather, and with sharded parameters a second all-gather for the
    /// backward pass (Rajbhandari et al. 2020, section 7).
    pub fn volume(self) -> f64 {
        match self {
            Sharding::Parameters => 3.0,
            // New values are read where they lie.
            Sharding::Host => 1.0,
            Sharding::None | Sharding::Optimizer | Sharding::Gradients => 2.0,
        }
    }

    /// Returns the name of the sharded state, which is that of `kolo train --shard`.
    pub fn name(self) -> &'static str {
        match self {
            Sharding::None => "nothing",
            Sharding::Optimizer => "optimizer",
            Sharding::Gradients => "gradients",
            Sharding::Parameters => "parameters",
            Sharding::Host => "host",
        }
    }

    fn part(self, from: Sharding, workers: f64) -> f64 {
        if self as u8 >= from as u8 { 1.0 / workers } else { 1.0 }
    }
}

/// Bytes of gradients that a worker has besides its part where they are sharded: two buckets on their way,
/// and one that collects, of 4 MiB each.
pub const IN_FLIGHT: f64 = 3.0 * 4.0 * 1024.0 * 1024.0;

/// Tensors that a worker's passes hold where parameters are sharded: the one that a layer uses, and two that
/// arrive ahead.
pub const GATHERED: f64 = 3.0;

/// Bytes of messages in which these tensors travel: one that arrives, and one that goes to another worker.
pub const PIECES: f64 = 2.0 * 1024.0 * 1024.0;

/// Bytes of buffers of a worker whose optimizer's state is in a file: what is read ahead, and what is written
/// behind.
pub const FILE_BUFFERS: f64 = 2.0 * 4.0 * 1024.0 * 1024.0;

/// Bytes of a checkpoint that the worker which writes it holds at a time where others have parts of the
/// state: a run of 4 MiB, the message that has brought it, and its bytes in the file.
pub const SAVED_AT_ONCE: f64 = 3.0 * 4.0 * 1024.0 * 1024.0;

/// Memory of one worker, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkerMemory {
    /// Bytes of parameters.
    pub parameters: f64,
    /// Bytes of gradients.
    pub gradients: f64,
    /// Bytes of the optimizer's state.
    pub optimizer: f64,
    /// Bytes of buckets in flight, where gradients are sharded ([`IN_FLIGHT`], or all gradients if they are
    /// fewer).
    pub in_flight: f64,
    /// Bytes of the values that the model's tensors hold besides flat memory. They cannot show that memory
    /// where values arrive from their owners, bucket by bucket, while a pass reads others.
    pub copied: f64,
    /// Bytes of a second set of gradients. Two workers that share memory add the sums as they read them, so
    /// one may still read the gradients of a step when the other's next pass writes its own.
    pub second_set: f64,
    /// Bytes of the optimizer's state in a file.
    pub in_file: f64,
    /// Bytes of these buffers in memory ([`FILE_BUFFERS`], or all state if that is less).
    pub file_buffers: f64,
}

impl WorkerMemory {
    /// Returns the total, in bytes, without buckets in flight: the sum of the ZeRO paper.
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.optimizer + self.file_buffers
    }

    /// Returns everything that a worker of `kolo train` holds on a CPU besides activations: also buckets in
    /// flight and copies.
    pub fn held(&self) -> f64 {
        self.total() + self.in_flight + self.copied + self.second_set
    }
}

impl Footprint {
    /// Returns the memory of one of `workers` that train `parameters`, each with one shard of a step. It does
    /// not include activations.
    pub fn per_worker(&self, parameters: f64, workers: f64, sharding: Sharding) -> WorkerMemory {
        if sharding == Sharding::Host {
            return self.of_host(parameters, workers);
        }
        let part = |from| parameters * sharding.part(from, workers);
        let divides = sharding as u8 >= Sharding::Gradients as u8 && workers > 1.0;
        let copies = matches!(sharding, Sharding::Optimizer | Sharding::Gradients);
        let is_pair = sharding == Sharding::None && workers == 2.0;
        WorkerMemory {
            parameters: self.parameter * part(Sharding::Parameters),
            gradients: self.gradient * part(Sharding::Gradients),
            optimizer: self.optimizer * part(Sharding::Optimizer),
            in_file: 0.0,
            file_buffers: 0.0,
            in_flight: if divides { IN_FLIGHT.min(self.gradient * parameters) } else { 0.0 },
            copied: if copies { self.parameter * parameters } else { 0.0 },
            second_set: if is_pair { self.gradient * parameters } else { 0.0 },
        }
    }

    /// Returns the bytes of gathered tensors, of which the largest has so many parameters.
    pub fn gathered(&self, largest: f64, workers: f64, sharding: Sharding) -> f64 {
        if sharding != Sharding::Parameters || workers <= 1.0 {
            return 0.0;
        }
        let bytes = self.parameter * largest;
        GATHERED * bytes + PIECES.min(2.0 * bytes)
    }

    /// Returns the bytes that the worker which writes a checkpoint holds on top meanwhile: a copy of exact
    /// values and of the optimizer's state; or the run that other workers send at the time
    /// ([`SAVED_AT_ONCE`]), where each of `workers` has a part of the state.
    pub fn saving(&self, parameters: f64, workers: f64, sharding: Sharding) -> f64 {
        let values = if self.parameter < 4.0 { 0.0 } else { self.parameter };
        let copy = parameters * (values + self.optimizer);
        let is_divided = workers > 1.0 && ![Sharding::None, Sharding::Host].contains(&sharding);
        if is_divided { SAVED_AT_ONCE.min(copy) } else { copy }
    }

    /// Returns a worker's part of the memory that all workers of a host share, and its own gradients. If the
    /// computation has values in another type, each worker has those, too.
    fn of_host(&self, parameters: f64, workers: f64) -> WorkerMemory {
        let is_exact = self.parameter >= 4.0;
        let (shared, own) = if is_exact { (2.0 * self.parameter, 0.0) } else { (4.0, self.parameter) };
        WorkerMemory {
            parameters: parameters * (own + shared / workers),
            gradients: parameters * self.gradient,
            optimizer: parameters * self.optimizer / workers,
            in_file: 0.0,
            file_buffers: 0.0,
            in_flight: 0.0,
            copied: 0.0,
            second_set: 0.0,
        }
    }

    /// Returns the same memory with the optimizer's state in a file. Exact values of a parameter that the
    /// computation has in another type stay in memory.
    pub fn offloaded(&self, memory: WorkerMemory) -> WorkerMemory {
        let exact = if self.parameter < 4.0 { 4.0 } else { 0.0 };
        let kept = if self.optimizer > 0.0 { memory.optimizer * exact / self.optimizer } else { 0.0 };
        let in_file = memory.optimizer - kept;
        WorkerMemory { optimizer: kept, in_file, file_buffers: FILE_BUFFERS.min(in_file), ..memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures from the ZeRO paper: 7.5 billion parameters on 64 GPUs.
    #[test]
    fn seven_and_a_half_billion_parameters_on_64_workers() {
        let of = |stage: &Sharding| MIXED_ADAM.per_worker(7.5e9, 64.0, *stage);
        let gigabytes = SHARDINGS.iter().map(|stage| of(stage).total() / 1e9);
        let rounded: Vec<String> = gigabytes.map(|gigabytes| format!("{gigabytes:.2}")).collect();
        assert_eq!(rounded, ["120.00", "31.41", "16.64", "1.88", "31.88"]);
    }

    /// Contradicts a common claim that seven billion parameters fit into 80 GB.
    #[test]
    fn seven_billion_parameters_do_not_fit_one_gpu() {
        assert_eq!(MIXED_ADAM.per_worker(7e9, 1.0, Sharding::None).total(), 112e9);
    }

    /// The step bounds the buckets in flight.
    #[test]
    fn buckets_in_flight_are_those_of_a_step() {
        let bucket = kolo_step::DIVIDED_BUCKET_MIB * 1024.0 * 1024.0;
        assert_eq!(IN_FLIGHT, (kolo_step::IN_FLIGHT + 1) as f64 * bucket);
        let of = |parameters, stage| FOOTPRINTS[2].per_worker(parameters, 4.0, stage);
        assert_eq!(of(1e7, Sharding::Gradients).in_flight, IN_FLIGHT);
        assert_eq!(of(1e5, Sharding::Gradients).in_flight, 4e5, "all gradients");
        assert_eq!(of(1e7, Sharding::Optimizer).in_flight, 0.0);
    }

    #[test]
    fn a_pass_has_copies_of_tensors_that_are_elsewhere() {
        assert_eq!(GATHERED, (1 + kolo_values::AHEAD) as f64);
        assert_eq!(PIECES, (2 * kolo_values::PIECE * size_of::<f32>()) as f64);
        let of = |largest, workers, sharding| FOOTPRINTS[2].gathered(largest, workers, sharding);
        assert_eq!(of(1e6, 2.0, Sharding::Parameters), 12e6 + PIECES);
        assert_eq!(of(1e3, 2.0, Sharding::Parameters), 20e3, "shorter than a message");
        assert_eq!((of(1e6, 1.0, Sharding::Parameters), of(1e6, 2.0, Sharding::Gradients)), (0.0, 0.0));
    }

    #[test]
    fn copies_are_held_on_top() {
        let on_top = |workers: f64| {
            SHARDINGS.iter().map(move |sharding| {
                let memory = FOOTPRINTS[2].per_worker(1e8, workers, *sharding);
                (memory.held() - memory.total() - memory.in_flight) / 1e8
            })
        };
        assert!(on_top(2.0).eq([4.0, 4.0, 4.0, 0.0, 0.0]), "a pair adds its sums as it reads them");
        assert!(on_top(4.0).eq([0.0, 4.0, 4.0, 0.0, 0.0]));
    }

    #[test]
    fn state_in_a_file_leaves_values_gradients_and_buffers() {
        assert_eq!(FILE_BUFFERS, kolo_offload::BUFFERS as f64);
        let adam = FOOTPRINTS[2];
        let memory = adam.offloaded(adam.per_worker(1e8, 4.0, Sharding::Optimizer));
        assert_eq!((memory.in_file, memory.optimizer), (2e8, 0.0));
        assert_eq!(memory.total(), 8e8 + FILE_BUFFERS);
        let mixed = MIXED_ADAM.offloaded(MIXED_ADAM.per_worker(1e8, 1.0, Sharding::None));
        assert_eq!((mixed.in_file, mixed.optimizer), (8e8, 4e8));
        let sgd = FOOTPRINTS[0];
        let plain = sgd.per_worker(1e6, 1.0, Sharding::None);
        assert_eq!(sgd.offloaded(plain), plain, "no state");
    }

    #[test]
    fn a_checkpoint_is_a_copy_of_values_and_state_unless_they_are_divided() {
        let saving = |parameters, workers, sharding| {
            let of = |footprint: &Footprint| footprint.saving(parameters, workers, sharding);
            FOOTPRINTS.iter().map(of).collect::<Vec<f64>>()
        };
        for sharding in SHARDINGS {
            // Of mixed precision the exact values, which are among the optimizer's state.
            assert_eq!(saving(1.0, 1.0, *sharding), [4.0, 8.0, 12.0, 12.0]);
            let is_copied = [Sharding::None, Sharding::Host].contains(sharding);
            let of_many = if is_copied { [4e9, 8e9, 12e9, 12e9] } else { [SAVED_AT_ONCE; 4] };
            assert_eq!(saving(1e9, 4.0, *sharding), of_many);
        }
        assert_eq!(SAVED_AT_ONCE, 3.0 * kolo_checkpoint::MOST_AT_ONCE as f64);
    }

    #[test]
    fn one_worker_has_nothing_to_share_out() {
        for footprint in FOOTPRINTS {
            let whole = footprint.per_worker(1000.0, 1.0, Sharding::None);
            let is_same = |stage: &Sharding| {
                WorkerMemory { copied: 0.0, ..footprint.per_worker(1000.0, 1.0, *stage) } == whole
            };
            // A host's copy has the next values beside the current ones.
            assert!(SHARDINGS.iter().all(|stage| is_same(stage) != (*stage == Sharding::Host)));
        }
    }
}
