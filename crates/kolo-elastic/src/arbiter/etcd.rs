//! Generations recorded in an etcd cluster, over the JSON gateway that etcd 3.3 and later serves beside
//! gRPC.
//!
//! | key | value |
//! |---|---|
//! | `kolo/<job>/begun` | exists once the job has begun: a launcher that sees it uses the same cluster |
//! | `kolo/<job>/generation` | the record of the last generation |
//!
//! In one transaction, a new record replaces the record that its claimant has read, or is the first. Reads
//! and transactions of etcd are linearizable, so of several launchers exactly one succeeds (etcd.io, "KV API
//! guarantees").

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kolo_rendezvous::Error;
use serde_json::{Value, json};
use ureq::Agent;

use super::claim::Record;
use super::recorded::Records;
use super::rule::Rule;

/// Time for an answer of one member of the cluster; then the next one is asked.
const ANSWER: Duration = Duration::from_secs(5);

struct Etcd {
    /// Host and port of each member of the cluster.
    members: Vec<String>,
    agent: Agent,
}

pub(super) fn read(members: &str) -> Result<Rule, Error> {
    let members: Vec<String> = members.split(',').map(String::from).collect();
    for member in &members {
        let port = member.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
        if port.is_none_or(|port| port.parse::<u16>().is_err()) {
            let why = "give a host and a port, as in etcd://node0:2379,node1:2379";
            return Err(Error::system(format!("`{member}` is no member of an etcd cluster"), why));
        }
    }
    let config = Agent::config_builder().timeout_global(Some(ANSWER)).proxy(None);
    Ok(Rule::Recorded(Arc::new(Etcd { members, agent: config.build().new_agent() })))
}

impl Etcd {
    /// Asks the members of the cluster in turn, until one answers.
    fn ask(&self, call: &str, question: &Value) -> Result<Value, String> {
        let mut problems = Vec::new();
        for member in &self.members {
            match self.ask_member(member, call, question) {
                Ok(answer) => return Ok(answer),
                Err(problem) => problems.push(format!("{member}: {problem}")),
            }
        }
        Err(format!("the etcd cluster does not answer ({})", problems.join("; ")))
    }

    fn ask_member(&self, member: &str, call: &str, question: &Value) -> Result<Value, String> {
        let url = format!("http://{member}/v3/kv/{call}");
        let sent = self.agent.post(&url).send(question.to_string());
        let text = sent.and_then(|mut answer| answer.body_mut().read_to_string());
        serde_json::from_str(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }

    /// Returns the value of a key; `None` if the key does not exist.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let answer = self.ask("range", &json!({ "key": STANDARD.encode(key) }))?;
        let Some(value) = answer["kvs"].get(0) else { return Ok(None) };
        let bytes = STANDARD.decode(value["value"].as_str().unwrap_or_default());
        bytes
            .map(Some)
            .map_err(|cause| format!("this launcher does not understand the value of {key}: {cause}"))
    }
}

fn begun_key(job: u64) -> String {
    format!("kolo/{job:016x}/begun")
}

fn generation_key(job: u64) -> String {
    format!("kolo/{job:016x}/generation")
}

impl Records for Etcd {
    fn place(&self) -> String {
        format!("etcd://{}", self.members.join(","))
    }

    fn begin(&self, job: u64) -> Result<(), String> {
        let put = json!({ "key": STANDARD.encode(begun_key(job)), "value": STANDARD.encode("1") });
        self.ask("put", &put).map(drop)
    }

    fn knows(&self, job: u64) -> Result<Result<(), String>, String> {
        let unknown =
            || format!("{} has not seen the job begin; give all nodes the same cluster", self.place());
        Ok(self.get(&begun_key(job))?.map(drop).ok_or_else(unknown))
    }

    fn last(&self, job: u64) -> Result<Option<Record>, String> {
        let Some(value) = self.get(&generation_key(job))? else { return Ok(None) };
        let record = serde_json::from_slice(&value);
        record
            .map(Some)
            .map_err(|cause| format!("this launcher does not understand {}: {cause}", generation_key(job)))
    }

    fn add(&self, job: u64, after: Option<&Record>, record: &Record) -> Result<bool, String> {
        let encoded = |record: &Record| serde_json::to_vec(record).map(|text| STANDARD.encode(text));
        let unreadable = |cause: serde_json::Error| format!("a record cannot be written: {cause}");
        let (key, value) = (STANDARD.encode(generation_key(job)), encoded(record).map_err(unreadable)?);
        let unchanged = match after {
            Some(after) => json!({ "target": "VALUE", "value": encoded(after).map_err(unreadable)? }),
            None => json!({ "target": "CREATE", "create_revision": "0" }),
        };
        let mut compare = json!({ "key": key, "result": "EQUAL" });
        if let (Some(compare), Value::Object(unchanged)) = (compare.as_object_mut(), unchanged) {
            compare.extend(unchanged);
        }
        let answer = self.ask(
            "txn",
            &json!({
                "compare": [compare],
                "success": [{ "request_put": { "key": key, "value": value } }],
            }),
        );
        match answer {
            Ok(answer) if answer["succeeded"] == json!(true) => Ok(true),
            // The answer may be lost and another member asked again, so only the value of the key counts.
            Ok(_) => Ok(self.last(job)?.as_ref() == Some(record)),
            Err(problem) => Err(problem),
        }
    }
}
