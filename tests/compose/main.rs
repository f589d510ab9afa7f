//! `docker-compose.yml` against the published schema, and against what README says of the server in it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

fn read(file: &str) -> Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .with_context(|| file.to_owned())
}

fn compose() -> Result<Value> {
    Ok(serde_norway::from_str(&read("docker-compose.yml")?)?)
}

fn schema() -> Result<(Schemas, SchemaIndex)> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let text = serde_json::from_str(&read("tests/compose/compose-spec.json")?)?;
    compiler
        .add_resource("compose-spec.json", text)
        .map_err(|error| anyhow!("{error}"))?;
    let index = compiler
        .compile("compose-spec.json", &mut schemas)
        .map_err(|error| anyhow!("{error}"))?;
    Ok((schemas, index))
}

#[test]
fn the_file_is_what_the_schema_allows() -> Result<()> {
    let (schemas, index) = schema()?;
    let file = compose()?;
    schemas
        .validate(&file, index)
        .map_err(|error| anyhow!("docker-compose.yml: {error:#}"))?;

    // The schema is one that notices mistakes.
    for (place, wrong) in [
        ("/services/redis/image", Value::from(8)),
        ("/services/redis/healthcheck/test", Value::from(8)),
        ("/services/worker/restart", Value::from(1)),
        ("/services/worker", serde_json::json!({"imgae": "redis:8"})),
    ] {
        let mut broken = file.clone();
        *broken
            .pointer_mut(place)
            .with_context(|| place.to_owned())? = wrong;
        ensure!(
            schemas.validate(&broken, index).is_err(),
            "{place}: not noticed"
        );
    }
    Ok(())
}

#[test]
fn the_server_keeps_what_it_is_given_and_listens_to_this_machine_alone() -> Result<()> {
    let file = compose()?;
    let redis = &file["services"]["redis"];
    let command = redis["command"].as_str().context("the command of redis")?;
    ensure!(
        command.contains("--appendonly yes") && command.contains("--maxmemory-policy noeviction"),
        "{command}"
    );
    ensure!(
        redis["healthcheck"]["test"].is_array() && redis["volumes"][0] == "redis:/data",
        "{redis}"
    );
    for (name, service) in file["services"].as_object().context("the services")? {
        for port in service["ports"].as_array().into_iter().flatten() {
            ensure!(
                port.as_str()
                    .is_some_and(|port| port.starts_with("127.0.0.1:")),
                "{name}: {port}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_dockerfile_has_what_the_services_are_built_from() -> Result<()> {
    let (file, dockerfile) = (compose()?, read("Dockerfile")?);
    let stages: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM ")?.split(" AS ").nth(1))
        .collect();
    for service in ["worker", "shell"] {
        let target = file["services"][service]["build"]["target"]
            .as_str()
            .context(service)?;
        ensure!(
            stages.contains(&target),
            "{service}: no stage {target} among {stages:?}"
        );
        ensure!(
            file["services"][service]["depends_on"]["redis"]["condition"] == "service_healthy",
            "{service}"
        );
    }
    for copied in dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY ")?.split(' ').next())
    {
        ensure!(
            copied.starts_with("--from=")
                || Path::new(env!("CARGO_MANIFEST_DIR")).join(copied).exists(),
            "{copied}"
        );
    }
    Ok(())
}
