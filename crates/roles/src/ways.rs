//! How a driver's controller is looked through, for whoever looks: what it can be asked, as the monitor wants to know it.

use volmedic_csi::dialect::{ControllerChoice, ControllerProbe};
use volmedic_monitor::{Absent, Way};

pub fn of_controller(choice: &ControllerChoice) -> Way {
    match choice.probe {
        ControllerProbe::ListHealth => Way::List { absent: Absent::Unlisted, looks: choice.confirms },
        ControllerProbe::ListVolumes => Way::List { absent: Absent::Missing, looks: choice.confirms },
        ControllerProbe::GetHealth | ControllerProbe::GetVolume => Way::Look,
        ControllerProbe::None => Way::Nothing,
    }
}
