//! Nothing reads the agent's log, and the pipe that it goes to is full.

use std::io::{BufRead, BufReader, ErrorKind, PipeWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use volmedic_driver::fault::Fault;

use crate::process::PATIENCE;
use crate::stage::{ABNORMAL, Stage};

/// Killed when dropped.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Until it takes no more.
fn fill(mut pipe: &PipeWriter) {
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    let full = (0..1 << 20).find_map(|_| pipe.write_all(b"\n").err());
    assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::WouldBlock));
    // As the agent finds it: a write waits.
    fcntl_setfl(pipe, flags).unwrap();
}

/// Whether the health check says that it is alive.
fn is_healthy(port: u16) -> bool {
    let answer = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    answer().is_ok_and(|line| line.contains(" 200 "))
}

#[tokio::test]
async fn while_its_log_is_not_read_it_renews_its_lease_answers_and_reports() {
    let mut stage = Stage::new().await;
    let data = stage.volume("data", "ext4").await;
    stage.pod("web", &[&data]).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (reader, writer) = std::io::pipe().unwrap();
    fill(&writer);
    let http = format!("--http-endpoint=127.0.0.1:{port}");
    let arguments =
        ["--csi-address=/nowhere/csi.sock", "--monitor-interval=300ms", "--log-level=debug", &http];
    let mut command = stage.command(&arguments);
    let mut agent = Child(command.stderr(writer).spawn().unwrap());
    // It holds the other end too.
    drop(command);

    let leases = Api::<Lease>::namespaced(stage.client.clone(), &stage.namespace);
    let name = format!("volmedic-agent-{}", stage.node);
    let deadline = Instant::now() + PATIENCE;
    let mut renewals: Vec<MicroTime> = Vec::new();
    while renewals.len() < 3 || !is_healthy(port) {
        assert!(Instant::now() < deadline, "the Lease was renewed {} times", renewals.len());
        let lease = leases.get_opt(&name).await.expect("the API server answers");
        let renewed = lease.and_then(|lease| lease.spec?.renew_time);
        if let Some(renewed) = renewed.filter(|renewed| renewals.last() != Some(renewed)) {
            renewals.push(renewed);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stage.harm(Fault::ReadOnly, &data);
    stage.event("web", ABNORMAL, &["ReadOnlyFilesystem"]).await;

    // What fitted into memory is there as soon as somebody reads.
    let (found, finds) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        for line in lines.filter(|line| line.contains("watching")) {
            let _ = found.send(line);
        }
    });
    let watching = tokio::task::spawn_blocking(move || finds.recv_timeout(PATIENCE)).await.unwrap();
    assert!(watching.is_ok(), "its log does not come");
    assert!(agent.0.try_wait().unwrap().is_none(), "it runs");
}
