//! Outputs of smartctl for each kind of drive, reduced to the relevant parts.

use proptest::prelude::*;

use super::*;

fn figures(text: &str, code: u8) -> DriveStatus {
    match read(text.as_bytes(), code) {
        Reading::Figures(figures) => *figures,
        other => panic!("{other:?}"),
    }
}

fn nothing(text: &str, code: u8) -> String {
    match read(text.as_bytes(), code) {
        Reading::Nothing(why) => why,
        other => panic!("{other:?}"),
    }
}

const NVME: &str = r#"{"json_format_version":[1,0],
"smartctl":{"version":[7,3],"exit_status":0},
"device":{"name":"/dev/nvme0n1","type":"nvme","protocol":"NVMe"},
"model_name":"Samsung SSD 980 PRO 1TB","serial_number":"S5GXNX0T123456",
"firmware_version":"5B2QGXA7","logical_block_size":512,
"smart_status":{"passed":true,"nvme":{"value":0}},
"nvme_smart_health_information_log":{"critical_warning":0,"temperature":38,"available_spare":100,
"percentage_used":3,"data_units_read":1000,"data_units_written":81234567,"power_on_hours":9876,
"media_errors":2,"num_err_log_entries":40},
"temperature":{"current":38},"power_on_time":{"hours":9876}}"#;

const SATA_SSD: &str = r#"{"smartctl":{"version":[7,3],"exit_status":0},
"model_name":"Crucial MX500","serial_number":"2005E2","firmware_version":"M3CR023",
"logical_block_size":512,"rotation_rate":0,"smart_status":{"passed":true},
"ata_smart_attributes":{"table":[
{"id":9,"name":"Power_On_Hours","value":100,"worst":100,"raw":{"value":11111,"string":"11111"}},
{"id":187,"name":"Reported_Uncorrect","value":100,"raw":{"value":1,"string":"1"}},
{"id":202,"name":"Percent_Lifetime_Remain","value":88,"raw":{"value":12,"string":"12"}},
{"id":241,"name":"Total_LBAs_Written","value":100,"raw":{"value":2000000,"string":"2000000"}}]},
"temperature":{"current":29},"power_on_time":{"hours":11111}}"#;

const HDD: &str = r#"{"smartctl":{"exit_status":8},
"model_name":"ST4000VN008-2DR166","serial_number":"ZGY1ABCD","firmware_version":"SC60",
"logical_block_size":512,"rotation_rate":5980,"smart_status":{"passed":false},
"ata_smart_attributes":{"table":[
{"id":5,"name":"Reallocated_Sector_Ct","value":1,"thresh":10,"when_failed":"now","raw":{"value":4000}}]},
"ata_device_statistics":{"pages":[{"number":1,"name":"General Statistics","table":[
{"offset":16,"name":"Power-on Hours","value":30000,"flags":{"valid":true}},
{"offset":24,"name":"Logical Sectors Written","value":60000000000,"flags":{"valid":true}}]},
{"number":4,"name":"General Errors Statistics","table":[
{"offset":8,"name":"Number of Reported Uncorrectable Errors","value":17,"flags":{"valid":true}}]}]},
"temperature":{"current":41},"power_on_time":{"hours":30000}}"#;

const SAS: &str = r#"{"smartctl":{"exit_status":0},
"scsi_vendor":"SEAGATE","scsi_product":"XS1600LE70004","scsi_model_name":"SEAGATE XS1600LE70004",
"scsi_revision":"0003","serial_number":"HEQ00ABC","rotation_rate":0,"smart_status":{"passed":true},
"scsi_percentage_used_endurance_indicator":6,
"temperature":{"current":35,"drive_trip":60},"power_on_time":{"hours":123,"minutes":4},
"scsi_grown_defect_list":0,
"scsi_error_counter_log":{"read":{"gigabytes_processed":"91234.123","total_uncorrected_errors":1},
"write":{"gigabytes_processed":"5000.5","total_uncorrected_errors":2},
"verify":{"gigabytes_processed":"0.000","total_uncorrected_errors":0}}}"#;

#[test]
fn an_nvme_drive_tells_all() {
    let drive = figures(NVME, 0);
    assert_eq!(drive.model.as_deref(), Some("Samsung SSD 980 PRO 1TB"));
    assert_eq!(drive.temperature_celsius, Some(38));
    assert_eq!(drive.used_permille, Some(30));
    assert_eq!(drive.media_errors, Some(2));
    assert_eq!(drive.power_on_hours, Some(9876));
    assert_eq!(drive.written_bytes, Some(81_234_567 * 512_000));
    assert_eq!(drive.failing, Some(false));
}

#[test]
fn a_sata_drives_attributes_are_taken_by_name() {
    let drive = figures(SATA_SSD, 0);
    assert_eq!(drive.used_permille, Some(120));
    assert_eq!(drive.written_bytes, Some(2_000_000 * 512));
    assert_eq!(drive.media_errors, Some(1));
    // An attribute whose name does not say so is not taken for wear.
    let unnamed = SATA_SSD.replace("Percent_Lifetime_Remain", "Unknown_Attribute");
    assert_eq!(figures(&unnamed, 0).used_permille, None);
}

#[test]
fn a_hard_disk_that_fails_still_tells_its_figures() {
    // With bit 3 of the exit code the drive reports that it is failing.
    let drive = figures(HDD, 8);
    assert_eq!(drive.failing, Some(true));
    assert_eq!(drive.media_errors, Some(17));
    assert_eq!(drive.written_bytes, Some(60_000_000_000 * 512));
    assert_eq!(drive.used_permille, None, "it has no endurance to use up");
    let invalid = HDD.replace(
        "\"value\":17,\"flags\":{\"valid\":true}",
        "\"value\":17,\"flags\":{\"valid\":false}",
    );
    assert_eq!(figures(&invalid, 8).media_errors, None);
}

#[test]
fn a_sas_drive_counts_in_gigabytes() {
    let drive = figures(SAS, 0);
    assert_eq!(drive.model.as_deref(), Some("SEAGATE XS1600LE70004"));
    assert_eq!(drive.firmware.as_deref(), Some("0003"));
    assert_eq!(drive.used_permille, Some(60));
    assert_eq!(drive.written_bytes, Some(5_000_500_000_000));
    assert_eq!(drive.media_errors, Some(3));
    assert_eq!(drive.power_on_hours, Some(123));
}

/// Returns every way to JSON's values in an output, as pointers.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), all));
        }
        Value::Array(list) => {
            let entries = list.iter().enumerate();
            entries.for_each(|(index, value)| pointers(value, &format!("{at}/{index}"), all));
        }
        _ => all.push(at.to_owned()),
    }
}

/// Returns each figure as text.
fn each(drive: &DriveStatus) -> [String; 9] {
    let DriveStatus { model, serial, firmware, temperature_celsius, used_permille, .. } = drive;
    let DriveStatus { media_errors, power_on_hours, written_bytes, failing, .. } = drive;
    [
        format!("{model:?}"),
        format!("{serial:?}"),
        format!("{firmware:?}"),
        format!("{temperature_celsius:?}"),
        format!("{used_permille:?}"),
        format!("{media_errors:?}"),
        format!("{power_on_hours:?}"),
        format!("{written_bytes:?}"),
        format!("{failing:?}"),
    ]
}

#[test]
fn an_odd_value_costs_that_value_alone() {
    for (text, code) in [(NVME, 0), (SATA_SSD, 0), (HDD, 8), (SAS, 0)] {
        let whole = each(&figures(text, code));
        let parsed: Value = serde_json::from_str(text).expect("JSON");
        let mut all = Vec::new();
        pointers(&parsed, "", &mut all);
        for pointer in all {
            for odd in
                ["null", "-1", "1.5", "36893488147419103232", "\"?\"", "\"\"", "[]", "{}", "[null]"]
            {
                let mut changed = parsed.clone();
                *changed.pointer_mut(&pointer).expect("it is there") =
                    serde_json::from_str(odd).expect("JSON");
                let found = each(&figures(&changed.to_string(), code));
                let other = whole.iter().zip(&found).filter(|(whole, found)| whole != found);
                assert!(other.count() <= 1, "{pointer} = {odd}: {found:?} instead of {whole:?}");
            }
        }
    }
}

#[test]
fn counters_beyond_64_bits_and_odd_bytes_leave_the_rest() {
    let media = "\"media_errors\":2,";
    let beyond = NVME.replace(media, "\"media_errors\":36893488147419103232,");
    let drive = figures(&beyond, 0);
    assert_eq!((drive.media_errors, drive.used_permille), (None, Some(30)));
    let text = NVME.replace(media, "\"media_errors\":\"2\",");
    assert_eq!(figures(&text, 0).media_errors, Some(2));
    let mut bytes = NVME.as_bytes().to_vec();
    let at = NVME.find("980").expect("the model");
    bytes[at] = 0xFF;
    let Reading::Figures(drive) = read(&bytes, 0) else { panic!("it has figures") };
    assert_eq!(drive.model.as_deref(), Some("Samsung SSD \u{FFFD}80 PRO 1TB"));
    assert_eq!(drive.temperature_celsius, Some(38));
}

#[test]
fn what_cannot_be_read_is_told_with_its_reason() {
    let usb = r#"{"smartctl":{"messages":[{"string":"/dev/sdb: Unknown USB bridge [0x0781:0x5581]",
        "severity":"error"}],"exit_status":1}}"#;
    let why = nothing(usb, 1);
    assert!(why.contains("0x5581") && why.contains("does not pass health data on"), "{why}");
    let denied = r#"{"smartctl":{"messages":[{"string":
        "Smartctl open device: /dev/sda failed: Permission denied","severity":"error"}],
        "exit_status":2}}"#;
    let why = nothing(denied, 2);
    assert!(why.contains("Permission denied") && why.contains("CAP_SYS_RAWIO"), "{why}");
    assert!(nothing("{}", 0).contains("no health data"));
    assert!(nothing("smartctl 6.6 usage: …", 1).contains("older than 7.0"));
    assert!(nothing("", 255).contains("exited 255"));
}

#[test]
fn a_sleeping_disk_is_told_from_a_broken_one() {
    assert_eq!(read(br#"{"smartctl":{"exit_status":3}}"#, ASLEEP), Reading::Asleep);
    let older = br#"{"smartctl":{"messages":[{"string":"Device is in STANDBY mode, exit(2)"}]}}"#;
    assert_eq!(read(older, 2), Reading::Asleep);
    assert!(arguments("/dev/sda").windows(2).any(|pair| pair == ["-n", "standby,3"]));
}

proptest! {
    #[test]
    fn no_output_panics(text in ".*", code: u8) {
        let _ = read(text.as_bytes(), code);
    }

    #[test]
    fn no_cut_or_change_of_an_output_panics(
        which in 0..4_usize, at in 0..2000_usize, byte: u8, code: u8,
    ) {
        let mut bytes = [NVME, SATA_SSD, HDD, SAS][which].as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes, code);
        bytes.truncate(at);
        let _ = read(&bytes, code);
    }
}
