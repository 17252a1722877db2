//! The encryption of mod_gearman: AES-256 in the mode ECB, with zero padding, and the key padded with zeros to 32 bytes.
//!
//! The mode hides little (equal blocks stay equal), and does not authenticate the sender. mod_gearman's servers use it, so
//! there is no choice.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const BLOCK: usize = 16;
const KEY: usize = 32;
/// Encodes with padding, and decodes with or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How payloads are written: in base64, and encrypted before that if there is a key.
pub struct Envelope(Option<Aes256>);

impl Envelope {
    /// Without encryption.
    pub fn plain() -> Self {
        Self(None)
    }

    /// With a key. Bytes after the 32nd are ignored, missing ones are zero.
    pub fn with_key(key: &[u8]) -> Self {
        let mut whole = [0; KEY];
        let length = key.len().min(KEY);
        whole[..length].copy_from_slice(&key[..length]);
        Self(Some(Aes256::new(&whole.into())))
    }

    /// Encrypts a payload, if there is a key, and encodes it.
    pub fn seal(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = payload.to_vec();
        if let Some(cipher) = &self.0 {
            bytes.resize(payload.len().div_ceil(BLOCK) * BLOCK, 0);
            for block in bytes.chunks_exact_mut(BLOCK) {
                if let Ok(block) = <&mut Block>::try_from(block) {
                    cipher.encrypt_block(block);
                }
            }
        }
        BASE64.encode(bytes).into_bytes()
    }

    /// Decodes a payload, and decrypts it. Zeros at its end are padding. `None`: it is not in base64, or not whole blocks.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let text: Vec<u8> = sealed.iter().copied().filter(|byte| *byte != 0 && !byte.is_ascii_whitespace()).collect();
        let mut bytes = BASE64.decode(text).ok()?;
        if let Some(cipher) = &self.0 {
            if bytes.len() % BLOCK != 0 {
                return None;
            }
            for block in bytes.chunks_exact_mut(BLOCK) {
                cipher.decrypt_block(<&mut Block>::try_from(block).ok()?);
            }
        }
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Some(bytes)
    }
}

impl std::fmt::Debug for Envelope {
    /// Without the key.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.0.is_some() { "Envelope(encrypted)" } else { "Envelope(plain)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16).expect("hex"))
            .collect()
    }

    /// NIST SP 800-38A, F.1.5 and F.1.6: ECB-AES256.
    #[test]
    fn the_vectors_of_nist_are_encrypted_and_decrypted() {
        let key = bytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let plain = bytes(concat!(
            "6bc1bee22e409f96e93d7e117393172a",
            "ae2d8a571e03ac9c9eb76fac45af8e51",
            "30c81c46a35ce411e5fbc1191a0a52ef",
            "f69f2445df4f9b17ad2b417be66c3710",
        ));
        let secret = bytes(concat!(
            "f3eed1bdb5d2a03c064b5a7e3db181f8",
            "591ccb10d410ed26dc5ba74a31362870",
            "b6ed21b99ca6f4f9f153e7b1beafed1d",
            "23304b7a39f9f3ff067d8d8f9e24ecc7",
        ));
        let envelope = Envelope::with_key(&key);
        let sealed = envelope.seal(&plain);
        assert_eq!(BASE64.decode(&sealed).expect("base64"), secret);
        assert_eq!(envelope.open(&sealed).expect("opened"), plain);
    }

    #[test]
    fn payloads_of_every_length_come_back() {
        for envelope in [Envelope::plain(), Envelope::with_key(b"short"), Envelope::with_key(&[b'x'; 40])] {
            for length in 0..100 {
                let payload: Vec<u8> = (0..length).map(|n| b'a' + n % 26).collect();
                assert_eq!(envelope.open(&envelope.seal(&payload)), Some(payload));
            }
        }
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        assert_eq!(Envelope::plain().open(b"type=service"), None);
        assert_eq!(Envelope::with_key(b"key").open(&Envelope::plain().seal(b"half a block")), None);
    }
}
