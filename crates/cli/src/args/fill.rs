//! Flags that fill the plain settings of a library.

/// A flag that replaces a setting if it was given.
pub(super) trait Fill<T> {
    /// Replaces the setting if the flag was given.
    fn fill(self, setting: &mut T);
}

impl<F: Into<T>, T> Fill<Option<T>> for Option<F> {
    fn fill(self, setting: &mut Option<T>) {
        if let Some(value) = self {
            *setting = Some(value.into());
        }
    }
}

impl Fill<bool> for bool {
    fn fill(self, setting: &mut bool) {
        *setting |= self;
    }
}

/// Declares the flags of settings. Each flag has the name of the setting that it replaces.
macro_rules! flags {
    (
        $(#[$of_struct:meta])*
        pub struct $flags:ident for $settings:ident {
            $($(#[$of_flag:meta])* pub $flag:ident: $kind:ty,)*
        }
    ) => {
        $(#[$of_struct])*
        pub struct $flags {
            $($(#[$of_flag])* pub $flag: $kind,)*
        }

        impl $flags {
            /// Returns the settings with the given flags in their place.
            pub fn fill(self, mut settings: $settings) -> $settings {
                $(Fill::fill(self.$flag, &mut settings.$flag);)*
                settings
            }
        }
    };
}

pub(super) use flags;
