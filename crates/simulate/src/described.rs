//! The drives behind the legs as a result's reader has to know them: presets, scale, how far the
//! models have been held against the drives.

use std::path::Path;

use hemi_drives::preset::{Class, Preset, PresetError};
use serde::Serialize;

use crate::spec::SystemSpec;
use crate::stock;

/// The drive behind a leg.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Described {
    /// Name of the preset.
    pub preset: String,
    /// Total divisor of the flash capacity, including the preset's own scale; rates are
    /// unchanged.
    pub flash_scale: u64,
    /// Classes of requests (`reads`, `writes`) of which no published figure is known that the
    /// model was held against.
    pub not_validated: Vec<&'static str>,
}

/// Describes the first `count` legs of a system; paths are relative to `folder`.
pub(crate) fn legs(
    system: &SystemSpec,
    count: usize,
    folder: &Path,
) -> Result<Vec<Described>, PresetError> {
    let leg = |name: &String| {
        let preset = stock::preset(name, folder)?.scaled(system.scale);
        let validation = preset.validation();
        let lacking = Class::ALL.into_iter().filter(|class| !validation.of(*class).is_validated());
        Ok(Described {
            preset: name.clone(),
            flash_scale: preset.flash_scale()?,
            not_validated: lacking.map(Class::name).collect(),
        })
    };
    system.legs[..count].iter().map(leg).collect()
}

/// Returns a warning for each of the first `count` legs whose flash is divided so far that its
/// speed is no longer that of the drive.
pub(crate) fn warnings(
    system: &SystemSpec,
    count: usize,
    folder: &Path,
) -> Result<Vec<String>, PresetError> {
    let mut warnings = Vec::new();
    for name in &system.legs[..count] {
        let warning = too_small(name, &stock::preset(name, folder)?, system.scale)?;
        // A mirror of equal legs is warned of once.
        warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
    }
    Ok(warnings)
}

/// Returns the warning about a preset divided by `scale`, if that is too much.
fn too_small(name: &str, preset: &Preset, scale: u64) -> Result<Option<String>, PresetError> {
    let Some(beyond) = preset.too_small(scale)? else { return Ok(None) };
    let way_out = match beyond.most {
        0 => "its own scale is too large: lower `scale` in the preset's file".to_owned(),
        1 => "leave system.scale out, or give 1".to_owned(),
        most => format!("take a system.scale of at most {most}"),
    };
    Ok(Some(format!("{name}: {beyond}; {way_out}")))
}

#[cfg(test)]
mod tests {
    use hemi_drives::preset::Preset;

    use super::too_small;

    fn said(name: &str, scale: u64) -> Option<String> {
        too_small(name, &Preset::built_in(name).unwrap(), scale).unwrap()
    }

    #[test]
    fn flash_divided_too_far_is_warned_of_with_the_way_out() {
        for name in Preset::names() {
            assert_eq!(said(name, 1), None, "a preset's own scale is sound");
        }
        let preset = Preset::built_in("nvme-enterprise").unwrap();
        let best = preset.scale_most().unwrap().unwrap();
        assert!(best > 1, "{best}");
        assert_eq!(said("nvme-enterprise", best), None);
        let warning = said("nvme-enterprise", best + 1).unwrap();
        assert!(warning.contains("nvme-enterprise: "), "{warning}");
        assert!(warning.ends_with(&format!("a system.scale of at most {best}")), "{warning}");
    }

    #[test]
    fn what_has_no_flash_may_be_scaled_at_will() {
        assert_eq!(said("hdd-20tb", 1 << 20), None);
        assert_eq!(said("wd-16-raid0-b", 1 << 20), None);
        assert_eq!(said("gp3", 1 << 20), None);
        assert!(said("x25e-8-raid5-a", 1 << 20).is_some(), "an array has its members' bound");
    }
}
