//! Whatever is wrong with a volume, a heal leaves it no worse.

use volmedic_driver::fault::{Fault, Kind};

use super::super::driver::{Driver, Volume};
use super::super::table::Row;
use super::super::volumes::settle;
use super::{heal, heal_fully};

pub(crate) fn a_heal_does_no_harm_to(kind: Kind) {
    let driver = Driver::start_healing(&[]);
    let volume = Volume::new(&driver, kind);
    for &fault in Fault::ALL.iter().filter(|fault| fault.kinds().contains(&kind)) {
        driver.faults().inject(fault, Some(&volume.id)).unwrap();
        heal(&driver, &volume);
        // A caller that crashed asks twice.
        heal(&driver, &volume);
        driver
            .faults()
            .clear(fault, Some(&volume.id))
            .unwrap_or_else(|error| panic!("clearing {fault} on {} after a heal: {error}", kind.name()));
        if fault == Fault::MounterKilled {
            volume.put_up();
        }
        let what = format!("after {fault}, a heal, and the end of {fault}");
        settle(&driver, &volume, &what, |row| *row == Row::healthy());
    }
    assert_eq!(heal_fully(&driver, &volume), "the volume was checked and is healthy; nothing was done");
}
